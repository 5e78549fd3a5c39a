/*
 * Whatever changes in the directory, iscsi has what is there; the directory and
 * iscsi are these tests'.
 */
#include "base/util.h"
#include "node/admin_int.h"
#include "tests/lib/seeds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TARGETS 4u
#define LUNS 3u /* of a target */
#define VDISKS 4u
#define ROUNDS 100u

struct row {
	struct cmmds_entry entry;
	bool there;
	uint8_t key[CMMDS_KEY_MAX];
	union {
		ProtobufCMessage base;
		Directory__Target target;
		Directory__Lun lun;
		Directory__VDisk vdisk;
	} m;
};

static struct {
	struct row targets[TARGETS], luns[TARGETS * LUNS], vdisks[VDISKS];
	struct row old; /* what a row was before it changed */
	char iqns[TARGETS][2][32], names[TARGETS + VDISKS][8];
	struct uuid oids[VDISKS];
	uint64_t revision;
	unsigned walks; /* begun over all there is */
	unsigned failures; /* iscsi refuses so many */
	struct cmmds_subscription *subs[CMMDS_KINDS];
	struct {
		bool target;
		struct {
			bool there;
			struct uuid object;
			struct iscsi_lun_conf conf;
		} luns[LUNS];
	} iscsi[TARGETS][2];
} is;

static struct node node;
static struct test_shard ts;

/* ---- the directory ---- */

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len);
const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name);
const Directory__VDisk *__wrap_cmmds_vdisk(struct cmmds *cmmds,
					   const char *name);
void __wrap_cmmds_subscribe(struct cmmds *cmmds,
			    struct cmmds_subscription *sub);
void __wrap_cmmds_unsubscribe(struct cmmds_subscription *sub);
int __wrap_iscsi_target_set(struct iscsi *iscsi,
			    const struct iscsi_target_conf *conf);
void __wrap_iscsi_target_unset(struct iscsi *iscsi, const char *iqn);
int __wrap_iscsi_lun_set(struct iscsi *iscsi, const struct iscsi_lun_conf *c);
void __wrap_iscsi_lun_unset(struct iscsi *iscsi, const char *iqn, unsigned lun);

static struct row *rows_of(enum cmmds_kind kind, unsigned *count)
{
	*count = kind == CMMDS_TARGET ? TARGETS
		 : kind == CMMDS_LUN  ? TARGETS * LUNS
				      : VDISKS;
	return kind == CMMDS_TARGET ? is.targets
	       : kind == CMMDS_LUN  ? is.luns
				    : is.vdisks;
}

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len)
{
	unsigned count;
	struct row *rows = rows_of(kind, &count);

	for (unsigned i = 0; i < count; i++)
		if (rows[i].there && rows[i].entry.key_len == key_len &&
		    memcmp(rows[i].key, key, key_len) == 0)
			return &rows[i].entry;
	return NULL;
}

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	unsigned count;
	struct row *rows = rows_of(kind, &count);

	is.walks += after == NULL;
	for (unsigned i = 0; i < count; i++)
		if (rows[i].there && (after == NULL || &rows[i].entry > after))
			return &rows[i].entry;
	return NULL;
}

const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name)
{
	const struct cmmds_entry *e =
		__wrap_cmmds_get(cmmds, CMMDS_TARGET, name, strlen(name));

	return e != NULL ? (const void *)e->message : NULL;
}

const Directory__VDisk *__wrap_cmmds_vdisk(struct cmmds *cmmds,
					   const char *name)
{
	const struct cmmds_entry *e =
		__wrap_cmmds_get(cmmds, CMMDS_VDISK, name, strlen(name));

	return e != NULL ? (const void *)e->message : NULL;
}

void __wrap_cmmds_subscribe(struct cmmds *cmmds, struct cmmds_subscription *sub)
{
	is.subs[sub->kind] = sub;
}

void __wrap_cmmds_unsubscribe(struct cmmds_subscription *sub)
{
}

/* ---- iscsi ---- */

static void iqn_find(const char *iqn, unsigned *target, unsigned *which)
{
	for (unsigned i = 0; i < 2 * TARGETS; i++)
		if (strcmp(is.iqns[i / 2][i % 2], iqn) == 0) {
			*target = i / 2;
			*which = i % 2;
			return;
		}
	CHECK(false);
}

static bool refuses(void)
{
	is.failures -= is.failures > 0;
	return is.failures > 0;
}

int __wrap_iscsi_target_set(struct iscsi *iscsi,
			    const struct iscsi_target_conf *conf)
{
	unsigned t = 0, w = 0;

	iqn_find(conf->iqn, &t, &w);
	if (refuses())
		return -ENOMEM;
	is.iscsi[t][w].target = true;
	return 0;
}

/* What is gone is told only of what was there, and its LUNs first. */
void __wrap_iscsi_target_unset(struct iscsi *iscsi, const char *iqn)
{
	unsigned t = 0, w = 0;

	iqn_find(iqn, &t, &w);
	for (unsigned i = 0; i < LUNS; i++)
		CHECK(!is.iscsi[t][w].luns[i].there);
	is.iscsi[t][w].target = false;
}

int __wrap_iscsi_lun_set(struct iscsi *iscsi, const struct iscsi_lun_conf *c)
{
	unsigned t = 0, w = 0;

	iqn_find(c->iqn, &t, &w);
	if (refuses() || !is.iscsi[t][w].target)
		return -ENOENT;
	is.iscsi[t][w].luns[c->lun].there = true;
	is.iscsi[t][w].luns[c->lun].conf = *c;
	is.iscsi[t][w].luns[c->lun].conf.name =
		__wrap_cmmds_vdisk(NULL, c->name)->name;
	return 0;
}

void __wrap_iscsi_lun_unset(struct iscsi *iscsi, const char *iqn, unsigned lun)
{
	unsigned t = 0, w = 0;

	iqn_find(iqn, &t, &w);
	is.iscsi[t][w].luns[lun].there = false;
}

/* ---- changes ---- */

static void tell(enum cmmds_kind kind, const struct cmmds_entry *old,
		 const struct cmmds_entry *new)
{
	is.subs[kind]->cb(is.subs[kind],
			  &(struct cmmds_change){ .kind = kind,
						  .old_entry = old,
						  .new_entry = new });
}

static struct row *change_begin(struct row *row)
{
	is.old = *row;
	is.old.entry.message = &is.old.m.base;
	return row;
}

static void change_end(struct row *row, enum cmmds_kind kind, bool there)
{
	row->there = there;
	row->entry.kind = kind;
	row->entry.key = row->key;
	row->entry.message = &row->m.base;
	row->entry.revision = ++is.revision;
	if (is.old.there || there)
		tell(kind, is.old.there ? &is.old.entry : NULL,
		     there ? &row->entry : NULL);
}

/* @other: to its LUNs, too. */
static void vdisk_put(unsigned v, bool other)
{
	struct row *row = change_begin(&is.vdisks[v]);
	Directory__VDisk *m = &row->m.vdisk;

	if (!row->there) {
		directory__vdisk__init(m);
		m->name = is.names[TARGETS + v];
		is.oids[v].b[0]++; /* another object */
		is.oids[v].b[1] = (uint8_t)v;
		m->oid.data = is.oids[v].b;
		m->oid.len = sizeof(is.oids[v].b);
		m->block_bytes = one_in(2) ? 512 : 4096;
		row->entry.key_len = strlen(m->name);
		memcpy(row->key, m->name, row->entry.key_len);
	}
	if (other)
		m->block_bytes ^= 512 ^ 4096;
	m->size_bytes++;
	change_end(row, CMMDS_VDISK, true);
}

static void target_put(unsigned t, unsigned which)
{
	struct row *row = change_begin(&is.targets[t]);
	Directory__Target *m = &row->m.target;

	directory__target__init(m);
	m->name = is.names[t];
	m->iqn = is.iqns[t][which];
	row->entry.key_len = strlen(m->name);
	memcpy(row->key, m->name, row->entry.key_len);
	change_end(row, CMMDS_TARGET, true);
}

static void lun_put(unsigned t, unsigned lun, unsigned v)
{
	struct row *row = change_begin(&is.luns[t * LUNS + lun]);
	Directory__Lun *m = &row->m.lun;

	if (!is.targets[t].there)
		target_put(t, one_in(2));
	if (!is.vdisks[v].there)
		vdisk_put(v, false);
	change_begin(row);
	directory__lun__init(m);
	m->target = is.names[t];
	m->lun = lun;
	m->vdisk = is.names[TARGETS + v];
	m->read_only = one_in(2);
	row->entry.key_len = node__lun_key(m->target, lun, row->key);
	change_end(row, CMMDS_LUN, true);
}

static void row_erase(struct row *row, enum cmmds_kind kind)
{
	change_end(change_begin(row), kind, false);
}

/* With what refers to it, in one command, in either order. */
static void erase(struct row *row, enum cmmds_kind kind, const char *name)
{
	bool first = one_in(2);

	if (!row->there)
		return;
	if (first)
		row_erase(row, kind);
	for (unsigned i = 0; i < TARGETS * LUNS; i++)
		if (is.luns[i].there &&
		    (strcmp(is.luns[i].m.lun.target, name) == 0 ||
		     strcmp(is.luns[i].m.lun.vdisk, name) == 0))
			row_erase(&is.luns[i], CMMDS_LUN);
	if (!first)
		row_erase(row, kind);
}

static void change_any(void)
{
	unsigned t = below(TARGETS);
	unsigned v = below(VDISKS);
	unsigned lun = below(LUNS);
	struct row *l = &is.luns[t * LUNS + lun];

	switch (below(8)) {
	case 0:
		vdisk_put(v, one_in(4));
		break;
	case 1:
		target_put(t,
			   is.targets[t].there && below(4) > 0
				   ? is.targets[t].m.target.iqn == is.iqns[t][1]
				   : below(2));
		break;
	case 2:
		erase(&is.targets[t], CMMDS_TARGET, is.names[t]);
		break;
	case 3:
		erase(&is.vdisks[v], CMMDS_VDISK, is.names[TARGETS + v]);
		break;
	case 4:
		if (l->there)
			row_erase(l, CMMDS_LUN);
		break;
	default:
		lun_put(t, lun, v);
	}
}

/* ---- the tests ---- */

struct nap {
	struct env_timer timer;
	bool over;
};

static void nap_over(struct env_timer *timer)
{
	container_of(timer, struct nap, timer)->over = true;
}

static void nap(uint64_t ns)
{
	struct nap n = { .timer.cb = nap_over };

	env_timer_start(ts.env, &n.timer, ns);
	test_run(&ts, &n.over);
}

static struct push *pushed(void)
{
	struct push *push;

	memset(&is, 0, sizeof(is));
	for (unsigned i = 0; i < TARGETS; i++) {
		snprintf(is.names[i], sizeof(is.names[i]), "t%u", i);
		for (unsigned w = 0; w < 2; w++)
			snprintf(is.iqns[i][w], sizeof(is.iqns[i][w]),
				 "iqn.2026-01.test:%u.%u", i, w);
	}
	for (unsigned i = 0; i < VDISKS; i++)
		snprintf(is.names[TARGETS + i], sizeof(is.names[0]), "v%u", i);
	test_memory_open(&ts);
	node.env = ts.env;
	CHECK_EQ(node__push_open(&node, &push), 0);
	return push;
}

static void lun_check(unsigned t, unsigned w, unsigned lun, bool target)
{
	const struct row *row = &is.luns[t * LUNS + lun];
	const struct iscsi_lun_conf *conf = &is.iscsi[t][w].luns[lun].conf;
	const Directory__VDisk *v;

	CHECK_EQ(is.iscsi[t][w].luns[lun].there, target && row->there);
	if (!target || !row->there)
		return;
	v = __wrap_cmmds_vdisk(NULL, row->m.lun.vdisk);
	CHECK(memcmp(conf->object.b, v->oid.data, v->oid.len) == 0);
	CHECK_STR(conf->name, v->name);
	CHECK_EQ(conf->block_bytes, v->block_bytes);
	CHECK_EQ(conf->read_only, row->m.lun.read_only);
}

static void check(void)
{
	for (unsigned i = 0; i < 2 * TARGETS; i++) {
		unsigned t = i / 2, w = i % 2;
		bool there = is.targets[t].there &&
			     is.targets[t].m.target.iqn == is.iqns[t][w];

		CHECK_EQ(is.iscsi[t][w].target, there);
		for (unsigned lun = 0; lun < LUNS; lun++)
			lun_check(t, w, lun, there);
	}
}

static void changed_one(void)
{
	struct push *push = pushed();

	for (unsigned i = 0; i < ROUNDS; i++) {
		/* All of a turn are looked at together. */
		for (unsigned n = 1 + below(5); n > 0; n--)
			change_any();
		nap(0);
		check();
	}
	node__push_close(push);
	nap(0);
	test_shard_close(&ts);
}

TEST(node_changes, iscsi_has_what_is_there)
{
	seeds_run(50, 5000, changed_one);
}

/* What is refused is tried again, with whatever has changed meanwhile. */
static void refused_one(void)
{
	struct push *push = pushed();

	for (unsigned i = 0; i < ROUNDS / 10; i++) {
		is.failures = below(4);
		for (unsigned n = 0; n < 3; n++) {
			change_any();
			nap(0);
		}
		is.failures = 0;
		nap(2 * SEC);
		check();
	}
	node__push_close(push);
	nap(0);
	test_shard_close(&ts);
}

TEST(node_changes, iscsi_refuses_some)
{
	seeds_run(20, 1000, refused_one);
}

/* There may be thousands: who changes one looks at that one. */
TEST(node_changes, only_what_changed_is_looked_at)
{
	struct push *push = pushed();

	for (unsigned t = 0; t < TARGETS; t++)
		lun_put(t, 0, t);
	nap(0);
	check();
	is.walks = 0;
	vdisk_put(1, false); /* it has another size */
	nap(0);
	lun_put(2, 1, 3);
	nap(0);
	target_put(3, is.targets[3].m.target.iqn == is.iqns[3][1]);
	nap(0);
	erase(&is.targets[0], CMMDS_TARGET, is.names[0]);
	nap(0);
	erase(&is.vdisks[1], CMMDS_VDISK, is.names[TARGETS + 1]);
	nap(0);
	check();
	CHECK_EQ(is.walks, 0);
	node__push_close(push);
	nap(0);
	test_shard_close(&ts);
}
