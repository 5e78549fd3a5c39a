# Basalt: make | run | stop | wipe | test | soak | bench | fuzz | lint | cov |
# deb | image | install DESTDIR=.  Everything built lands under $(O).
#
#   make O=build/asan SAN=address,undefined unit
#   make O=build/tsan SAN=thread unit
#
# For another processor, with its packages unpacked in ROOT, and PKG_CONFIG_LIBDIR
# and PKG_CONFIG_SYSROOT_DIR in the environment saying so:
#
#   make O=build/arm64 CC="aarch64-linux-gnu-gcc --sysroot=ROOT" \
#	AR=aarch64-linux-gnu-ar all tools unit-bins

O ?= build
SAN ?=
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-5s %s\n' $(1) $(2);)

CC ?= gcc
PROTOC_C ?= protoc-c
PKG_CONFIG ?= pkg-config

ROOMS := base proto lsom rdt cmmds dom iscsi iser node
PKGS := libuv liburing libprotobuf-c libcrypto jansson libsystemd \
	libmicrohttpd libisal inih libibverbs librdmacm zlib
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null)

CFLAGS ?= -O2 -g
CPPFLAGS += -D_GNU_SOURCE -I. -I$(O)/gen $(PKG_CFLAGS)
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wno-unused-parameter -Wno-missing-field-initializers \
	$(if $(WERROR),-Werror)
BASE_CFLAGS := -std=gnu11 -fno-omit-frame-pointer -fno-strict-aliasing \
	-pthread $(WARN)
# What is sanitized has chars without a sign, as on arm64; the rest has them with one
# on x86.
SAN_FLAGS := $(if $(SAN),-funsigned-char -fsanitize=$(SAN) \
	-fno-sanitize-recover=undefined)
# A request goes through every room: GCC optimizes basaltd as a whole.  What the
# tests link takes the same objects as they are.
LTO ?= $(if $(SAN)$(findstring clang,$(CC)),,-flto=auto)
LIBS := $(PKG_LIBS) -lrocksdb -lraft -lpthread -lm

# ---- what is there ----

PROTOS := $(wildcard proto/*.proto)
PROTO_C := $(PROTOS:%.proto=$(O)/gen/%.pb-c.c)
PROTO_H := $(PROTO_C:.c=.h)

room_src = $(filter-out node/main.c,$(wildcard $(1)/*.c))
room_obj = $(patsubst %.c,$(O)/%.o,$(call room_src,$(1)))
room_lib = $(O)/lib/$(1).a

CLI_OBJS := $(patsubst %.c,$(O)/%.o,$(wildcard node/cli/*.c))
TESTLIB_OBJS := $(patsubst %.c,$(O)/%.o,$(wildcard tests/lib/*.c))
UNIT_SRC := $(wildcard tests/unit/*.c)
UNIT_BINS := $(patsubst tests/%.c,$(O)/tests/%,$(UNIT_SRC))
SIM_OBJS := $(patsubst %.c,$(O)/%.o,$(wildcard tests/sim/*.c))
TOOL_SRC := $(wildcard tests/tools/*.c)
TOOL_BINS := $(patsubst tests/%.c,$(O)/tests/%,$(TOOL_SRC))

PRELOADS := $(patsubst %.c,$(O)/%.so,$(wildcard tests/preload/*.c))

PROGRAMS := $(if $(wildcard node/main.c),$(O)/basaltd) \
	$(if $(CLI_OBJS),$(O)/basalt)

.PHONY: all run stop wipe test soak bench fuzz lint format cov install \
	unit unit-bins tidy tools copies clean deps deb image FORCE
.SECONDARY:
all: $(PROGRAMS)

# ---- rules ----

$(O)/gen/%.pb-c.c $(O)/gen/%.pb-c.h: %.proto
	$(call say,PROTO,$<)
	@mkdir -p $(O)/gen
	$(Q)$(PROTOC_C) --c_out=$(O)/gen $<

$(O)/gen/%.o: $(O)/gen/%.c
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(BASE_CFLAGS) $(CFLAGS) $(SAN_FLAGS) \
		$(if $(LTO),$(LTO) -ffat-lto-objects) -c -o $@ $<

$(O)/%.o: %.c | $(PROTO_H)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -MMD -MP $(BASE_CFLAGS) $(CFLAGS) $(SAN_FLAGS) \
		$(if $(LTO),$(LTO) -ffat-lto-objects) -c -o $@ $<

# What is made of all sources of a folder depends on the list of them, too: a
# source that goes leaves no newer object behind.
define list_rule
$(O)/list/$(1): FORCE
	@mkdir -p $$(@D)
	@echo $(2) | cmp -s - $$@ || echo $(2) >$$@
endef
$(foreach r,$(ROOMS),$(eval $(call list_rule,$(r),$(call room_obj,$(r)))))
$(eval $(call list_rule,cli,$(CLI_OBJS)))
$(eval $(call list_rule,sim,$(SIM_OBJS)))
$(eval $(call list_rule,testlib,$(TESTLIB_OBJS)))

define room_rule
$(call room_lib,$(1)): $(call room_obj,$(1)) $(if $(filter proto,$(1)),$(PROTO_C:.c=.o)) $(O)/list/$(1)
	$$(call say,AR,$$@)
	@mkdir -p $$(@D)
	$$(Q)rm -f $$@ && $$(AR) rcs $$@ $$(filter %.o,$$^)
endef
$(foreach r,$(ROOMS),$(eval $(call room_rule,$(r))))

$(O)/lib/test.a: $(TESTLIB_OBJS) $(O)/list/testlib
	@mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

# Which rooms a unit test of a room stands on.  iscsi's use a fake dom.
need_base := base
need_lsom := lsom base
need_rdt := rdt proto base
need_cmmds := cmmds rdt proto base
need_dom := dom lsom cmmds rdt proto base
need_iscsi := iscsi base
need_iser := iser iscsi base
need_node := node iser iscsi dom lsom cmmds rdt proto base
room_of = $(firstword $(subst _, ,$(notdir $(1))))
libs_of = $(foreach r,$(need_$(call room_of,$(1))),$(call room_lib,$(r)))

link = $(CC) $(CFLAGS) -pthread $(SAN_FLAGS) -o $@ \
	$(if $(and $(LTO),$(filter %/basaltd,$@)),$(LTO),-fno-lto) \
	$(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)

$(O)/basaltd: $(O)/node/main.o $(foreach r,$(need_node),$(call room_lib,$(r)))
	$(call say,LD,$@)
	$(Q)$(link)

$(O)/basalt: $(CLI_OBJS) $(call room_lib,proto) $(call room_lib,base) \
		$(O)/list/cli
	$(call say,LD,$@)
	$(Q)$(link)

define unit_rule
$(O)/tests/unit/$(1): $(O)/tests/unit/$(1).o $(call libs_of,$(1)) $(O)/lib/test.a
	$$(call say,LD,$$@)
	$$(Q)$$(link) -lcmocka
endef
$(foreach t,$(notdir $(UNIT_SRC:.c=)),$(eval $(call unit_rule,$(t))))
# Calls of theirs that a test answers itself.
comma := ,
wrap = $(foreach f,$(1),-Wl$(comma)--wrap=$(f))
$(O)/tests/unit/iscsi_shards $(O)/tests/unit/lsom_faults: \
	LIBS += $(call wrap,calloc)
$(O)/tests/unit/dom_memory $(O)/tests/unit/iscsi_lun: \
	LIBS += $(call wrap,calloc malloc)
$(O)/tests/unit/node_socket: LIBS += $(call wrap,calloc malloc clock_gettime \
	getsockopt getpwuid_r)
$(O)/tests/unit/lsom_memory: \
	LIBS += $(call wrap,calloc malloc realloc aligned_alloc \
		kv_batch_reserve lsom__page_read)
$(O)/tests/unit/lsom_moves: LIBS += $(call wrap,lsom__log_append)
$(O)/tests/unit/lsom_view: LIBS += $(call wrap,lsom_write)
$(O)/tests/unit/dom_owner $(O)/tests/unit/dom_stray: \
	LIBS += $(call wrap,lsom_comp_update)
$(O)/tests/unit/dom_owner: LIBS += $(call wrap,lsom_comp_each lsom_comp_some cmmds_next)
$(O)/tests/unit/dom_space_far: LIBS += $(call wrap,calloc malloc lsom__index_apply \
	lsom__segment_count lsom_credit_take lsom_decide)
$(O)/tests/unit/dom_atomic $(O)/tests/unit/dom_faults: \
	LIBS += $(call wrap,lsom_decide)
$(O)/tests/unit/dom_faults: LIBS += $(call wrap,lsom_write lsom_credit_take)
$(O)/tests/unit/base_kv: LIBS += $(call wrap,fsync fstatvfs posix_fallocate nanosleep)
$(O)/tests/unit/base_log: LIBS += $(call wrap,clock_gettime poll)
$(O)/tests/unit/base_uring: LIBS += $(call wrap,fopen)
$(O)/tests/unit/base_shard: LIBS += $(call wrap,open stat nanosleep pwritev2)
$(O)/tests/unit/node_push: LIBS += $(call wrap,cmmds_get cmmds_next cmmds_target \
	cmmds_subscribe cmmds_unsubscribe iscsi_target_set node__secret_open)
$(O)/tests/unit/node_changes: LIBS += $(call wrap,cmmds_get cmmds_next \
	cmmds_target cmmds_vdisk cmmds_subscribe cmmds_unsubscribe \
	iscsi_target_set iscsi_target_unset iscsi_lun_set iscsi_lun_unset)
$(O)/tests/unit/node_scrub: LIBS += $(call wrap,cmmds_get cmmds_put \
	cmmds_propose lsom_scrub lsom_scrub_cancel lsom_disk_info shard_env)
$(O)/tests/unit/node_disks: LIBS += $(call wrap,calloc malloc cmmds_next \
	cmmds_subscribe dom_disk_add dom_disk_components dom_disk_remove \
	iscsi_units_retry lsom_disk_attach lsom_disk_info lsom_disk_open lsom_disk_watch \
	node__datadir_ask node__disk_locate node__scrubs_look \
	node__serve_if_ready)
$(O)/tests/unit/node_portals: LIBS += $(call wrap,cmmds_get cmmds_subscribe \
	cmmds_unsubscribe iscsi_portal_listen iscsi_portal_unlisten \
	iscsi_portal_declare iscsi_portal_drop iscsi_portal_address \
	iser_listen iser_unlisten iser_listening admin__reply)
$(O)/tests/unit/node_metrics: LIBS += $(call wrap,realloc MHD_run \
	cmmds_behind cmmds_next cmmds_object iscsi_usage_of iscsi_session_each)
$(O)/tests/unit/node_usage: LIBS += $(call wrap,calloc malloc realloc \
	cmmds_behind cmmds_get cmmds_next cmmds_of cmmds_target iscsi_usage_of \
	iscsi_session_each admin__reply admin__reply_packed admin__progress)
$(O)/tests/unit/node_admin: LIBS += $(call wrap,cmmds_get cmmds_next cmmds_of \
	cmmds_behind cmmds_count cmmds_under \
	calloc malloc cmmds_put cmmds_audit cmmds_info cmmds_propose cmmds_vdisk \
	cmmds_target cmmds_policy cmmds_object \
	dom_create dom_object_open dom_object_close dom_object_size dom_map \
	dom_space \
	node__secret_seal iscsi_session_each iscsi_session_drop \
	admin__reply admin__reply_packed \
	strdup)
$(O)/tests/unit/node_object: LIBS += $(call wrap,calloc malloc realloc strdup \
	asprintf cmmds_get cmmds_next cmmds_of cmmds_vdisk cmmds_object dom_strays \
	dom_drop shards_count admin__change admin__reply admin__reply_packed \
	node__parts_start)
$(O)/tests/unit/node_lists: LIBS += $(call wrap,calloc malloc realloc \
	cmmds_behind cmmds_count cmmds_next cmmds_of cmmds_under cmmds_vdisk \
	cmmds_target cmmds_object iscsi_session_each iscsi_usage_of \
	lsom_checkpoint lsom_disk_info node__disk_open node__disk_silent_ns \
	admin__space_ask admin__progress admin__reply admin__reply_early \
	admin__reply_packed)

# Tools of the tests: a tool links the room its name begins with, or libiscsi.
define tool_rule
$(O)/tests/tools/$(1): $(O)/tests/tools/$(1).o $(if $(call libs_of,$(1)),$(call libs_of,$(1)) $(O)/lib/test.a)
	$$(call say,LD,$$@)
	$$(Q)$$(link) $(if $(call libs_of,$(1)),,-liscsi)
endef
$(foreach t,$(notdir $(TOOL_SRC:.c=)),$(eval $(call tool_rule,$(t))))

# Libraries that tests put before the C library of a program they run.
$(O)/tests/preload/%.so: tests/preload/%.c tests/preload/real.h
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(BASE_CFLAGS) $(CFLAGS) -fno-builtin -fPIC \
		-shared -o $@ $< -ldl

# The simulator: the rooms as shipped, on a virtual clock and faulty disks.
$(O)/sim: $(SIM_OBJS) $(foreach r,$(need_dom),$(call room_lib,$(r))) \
		$(O)/lib/test.a $(O)/list/sim
	$(call say,LD,$@)
	$(Q)$(link)

# What clang-tidy has found clean (.clang-tidy says what it looks for); a
# source is looked at again when it, a header of it or the checks changed.
# LLVMFuzzerTestOneInput and the like are not ours: the fuzzers stay out; so do
# the preloaded libraries, whose functions are declared by libc.
TIDY_SRC := $(foreach d,$(ROOMS) node/cli tests/lib tests/sim tests/tools \
	tests/unit,$(wildcard $(d)/*.c))
$(O)/tidy/%.ok: %.c .clang-tidy | $(PROTO_H)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -MM -MP -MT $@ -MF $(@:.ok=.d) $<
	$(Q)clang-tidy --quiet $< -- -std=gnu11 $(CPPFLAGS) 2>$@.err || \
		{ grep -v 'warnings generated' $@.err; false; }
	@touch $@
tidy: $(TIDY_SRC:%.c=$(O)/tidy/%.ok)

unit-bins: $(UNIT_BINS)
tools: $(TOOL_BINS) $(PRELOADS)
# A basaltd whose every copy is a call that can be seen (tests/lib/copies.py).
copies:
	$(Q)$(MAKE) --no-print-directory O=build/copies SAN= LTO= \
		CFLAGS='-O2 -g -fno-builtin' all
unit: unit-bins
	$(Q)O=$(O) tests/run unit

# ---- what people call ----

deps:
	$(Q)deploy/deps build run

run:
	$(Q)deploy/deps build run
	$(Q)$(MAKE) --no-print-directory all
	$(Q)deploy/run start

stop:
	$(Q)deploy/run stop

wipe:
	$(Q)deploy/run wipe

test:
	$(Q)deploy/deps build run test vm
	$(Q)tests/run

soak:
	$(Q)deploy/deps build run test vm
	$(Q)tests/run soak

bench:
	$(Q)deploy/deps build run test bench vm
	$(Q)$(MAKE) --no-print-directory all tools
	$(Q)tests/bench/run
	$(Q)tests/bench/vm

fuzz:
	$(Q)deploy/deps build run test
	$(Q)tests/run fuzz

lint:
	$(Q)deploy/deps build lint
	$(Q)tests/lint

format:
	$(Q)deploy/deps lint
	$(Q)git ls-files '*.c' '*.h' | xargs clang-format -i

# Lines of each room that the unit tests reach.
cov:
	$(Q)deploy/deps build run test
	$(Q)$(MAKE) --no-print-directory O=build/cov SAN= LTO= \
		CFLAGS='-O0 -g --coverage' unit
	$(Q)tests/cov build/cov

install: all
	install -d $(DESTDIR)/usr/bin $(DESTDIR)/usr/sbin \
		$(DESTDIR)/etc/basalt $(DESTDIR)/usr/lib/systemd/system \
		$(DESTDIR)/usr/share/man/man1 $(DESTDIR)/usr/share/man/man5 \
		$(DESTDIR)/usr/share/man/man8 \
		$(DESTDIR)/usr/share/bash-completion/completions
	install -m 755 $(O)/basaltd $(DESTDIR)/usr/sbin/basaltd
	install -m 755 $(O)/basalt $(DESTDIR)/usr/bin/basalt
	install -m 644 deploy/basalt.conf.example \
		$(DESTDIR)/etc/basalt/basalt.conf.example
	install -m 644 deploy/basaltd.service \
		$(DESTDIR)/usr/lib/systemd/system/basaltd.service
	for n in 1 5 8; do install -m 644 deploy/man/*.$$n \
		$(DESTDIR)/usr/share/man/man$$n/; done
	install -m 644 deploy/completion.bash \
		$(DESTDIR)/usr/share/bash-completion/completions/basalt

# A Debian package of what is built, in build/deb.
deb:
	$(Q)deploy/deps build package
	$(Q)$(MAKE) --no-print-directory all
	$(Q)deploy/package

# A container image of what is built, by the engine that is there.
image:
	$(Q)deploy/deps build package $(if $(or $(ENGINE),$(shell which podman \
		docker buildah 2>/dev/null)),,image)
	$(Q)$(MAKE) --no-print-directory all
	$(Q)deploy/container/image

clean:
	rm -rf $(O)

# Not of all that is in $(O), which may be much: other builds, and the root file
# systems of guests, with names like rc2.d.
-include $(shell find $(addprefix $(O)/,$(ROOMS) tests tidy) -name '*.d' 2>/dev/null)
