/* EXTENDED COPY between targets, on one shard and on several. */
#include "iscsi/scsi_int.h"
#include "tests/unit/iscsi_sides.h"

#define UNREACHABLE 0x0a0804u
#define THIRD_PARTY 0x0a0d01u
#define PROTECTED 0x072700u
#define BLOCKS 4096u /* of a copy: two steps */

static struct uuid here, there;

static void cscd(uint8_t *d, const struct uuid *id)
{
	d[0] = 0xe4;
	d[4] = 1;
	d[5] = 3;
	d[7] = 8;
	scsi_naa(id, d + 8);
	put_be24(d + 29, 512);
}

/* From one to the other, by a session with the target that shows @here. */
static uint32_t copy(struct mock *m, const struct uuid *source,
		     const struct uuid *to)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0xa0 };
	uint8_t list[16 + 64 + 28] = { 0 };

	put_be16(list + 2, 64);
	put_be32(list + 8, 28);
	cscd(list + 16, source);
	cscd(list + 48, to);
	list[80] = 2;
	list[83] = 24;
	list[87] = 1;
	put_be16(list + 90, BLOCKS);
	put_be64(list + 92, 8);
	put_be64(list + 100, 16);
	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, sizeof(list));
	bhs[32] = 0x83;
	put_be32(bhs + 32 + 10, sizeof(list));
	put_pdu(m, bhs, list, sizeof(list));
	return tag;
}

/* Its sense key, code and qualifier; 0: it was copied. */
static unsigned result(struct mock *m, uint32_t itt)
{
	struct seen *s = next(m);

	/* Each question of a step goes from shard to shard. */
	for (unsigned i = 0; i < 8 && s == NULL; i++)
		s = next(m);
	CHECK(s != NULL);
	CHECK_EQ(get_be32(s->bhs + 16), itt);
	if (s->bhs[3] == 0)
		return 0;
	CHECK_EQ(s->bhs[3], SCSI_CHECK_CONDITION);
	CHECK(s->len >= 2 + 18);
	return (unsigned)(s->data[2 + 2] & 0xf) << 16 |
	       (unsigned)s->data[2 + 12] << 8 | s->data[2 + 13];
}

struct io {
	struct dom_io io;
	bool done;
};

static void io_done(struct dom_io *io, int status)
{
	CHECK_EQ(status, 0);
	container_of(io, struct io, io)->done = true;
}

static void opened(struct dom_object_open *req, int status)
{
	CHECK_EQ(status, 0);
	*(bool *)req->data = true;
}

/*
 * A byte all over the blocks of the copy, at @lba, of what @shard's dom has; the
 * fake ones have a volume each.  Returns what was there.
 */
static uint8_t bytes(unsigned shard, const struct uuid *id, uint64_t lba,
		     int write)
{
	struct dom_object_open open = { 0 };
	struct io io = { 0 };
	bool done = false;
	struct page *page;
	struct sgl *sgl;
	uint8_t byte;

	open.data = &done;
	CHECK_EQ(dom_object_open(doms[shard], &open, id, opened), 0);
	test_run(&ts, &done);
	CHECK_EQ(dom_read(open.object, &io.io, lba * 512, BLOCKS * 512,
			  io_done),
		 0);
	test_run(&ts, &io.done);
	sgl_read(io.io.sgl, 0, &byte, 1);
	for (size_t at = 0; at < BLOCKS * 512u && write < 0; at += 512) {
		uint8_t b;

		sgl_read(io.io.sgl, at, &b, 1);
		CHECK_EQ(b, byte);
	}
	sgl_put(io.io.sgl);
	if (write >= 0) {
		io = (struct io){ 0 };
		CHECK_EQ(pages_alloc(ts.env->pages, PAGE_FRONT, 1, &page), 0);
		memset(page->data, write, PAGE_BYTES);
		sgl = sgl_repeat(ts.env->pages, page, BLOCKS * 512,
				 lba * 512 % PAGE_BYTES);
		page_put(ts.env->pages, page);
		CHECK_EQ(dom_write(open.object, &io.io, lba * 512, sgl, 0,
				   io_done),
			 0);
		test_run(&ts, &io.done);
		sgl_put(sgl);
	}
	dom_object_close(open.object);
	return byte;
}

static void admit(const char *iqn, const char *who, const char *user,
		  const char *secret)
{
	struct iscsi_target_conf conf = {
		.iqn = iqn,
		.allow = who != NULL ? &who : NULL,
		.allow_count = who != NULL,
		.chap_user = user,
		.chap_secret = (const uint8_t *)secret,
		.chap_secret_len = secret ? (unsigned)strlen(secret) : 0,
	};

	CHECK_EQ(iscsi_target_set(iscsi, &conf), 0);
	settle();
}

/* Two targets with a disk each, on these shards; @m is logged in to the first. */
static void begin(struct mock *m, unsigned first, unsigned second)
{
	open_all((struct iscsi_config){ 0 });
	here = disk(first, 0);
	there = disk(second, 1);
	target(IQN);
	target(OTHER);
	map(IQN, 0, here);
	map(OTHER, 0, there);
	settle();
	in(m, 1, first);
	widen(m);
	(void)bytes(first, &here, 8, 0x11);
	(void)bytes(first, &there, 8, 0x22);
}

static unsigned run(struct mock *m, const struct uuid *source,
		    const struct uuid *to)
{
	return result(m, copy(m, source, to));
}

TEST(copy, both_ways)
{
	static const unsigned places[][2] = {
		{ 0, 0 }, { 0, 1 }, { 1, 0 }, { 2, 2 }, { 1, 2 },
	};
	struct mock m;

	for (unsigned i = 0; i < ARRAY_LEN(places); i++) {
		unsigned first = places[i][0];

		begin(&m, first, places[i][1]);
		CHECK_EQ(run(&m, &here, &there), 0);
		CHECK_EQ(bytes(first, &there, 16, -1), 0x11);
		(void)bytes(first, &there, 8, 0x33);
		CHECK_EQ(run(&m, &there, &here), 0);
		CHECK_EQ(bytes(first, &here, 16, -1), 0x33);
		close_all();
	}
}

/* Only what its initiator could log in to, with what it has proved already. */
TEST(copy, access)
{
	struct mock m;
	struct uuid third;

	begin(&m, 1, 2);
	third = disk(0, 0); /* nobody shows it */
	CHECK_EQ(run(&m, &here, &third), UNREACHABLE);
	admit(OTHER, STRANGER, NULL, NULL);
	CHECK_EQ(run(&m, &here, &there), UNREACHABLE);
	admit(OTHER, WHO, NULL, NULL);
	CHECK_EQ(run(&m, &here, &there), 0);
	admit(OTHER, WHO, "me", "secret of twelve");
	CHECK_EQ(run(&m, &there, &here), UNREACHABLE);
	admit(OTHER, NULL, "me", "secret of twelve");
	CHECK_EQ(run(&m, &there, &here), UNREACHABLE);
	admit(OTHER, NULL, NULL, NULL);
	CHECK_EQ(run(&m, &there, &here), UNREACHABLE);
	/* A secret that was proved here counts there; as if it had been. */
	admit(OTHER, "any", "me", "secret of twelve");
	CHECK_EQ(run(&m, &there, &here), UNREACHABLE);
	iscsi__target_find(iscsi, IQN)->chap =
		iscsi__target_find(iscsi, OTHER)->chap;
	CHECK_EQ(run(&m, &there, &here), 0);
	admit(OTHER, "any", "me", "secret of twelvf");
	CHECK_EQ(run(&m, &there, &here), UNREACHABLE);
	admit(OTHER, "any", "me", "secret of twelve.");
	CHECK_EQ(run(&m, &there, &here), UNREACHABLE);
	admit(OTHER, "any", "me", "secret of twel");
	CHECK_EQ(run(&m, &there, &here), UNREACHABLE);
	admit(OTHER, "any", "you", "secret of twelve");
	CHECK_EQ(run(&m, &there, &here), UNREACHABLE);
	admit(OTHER, "any", NULL, NULL);
	CHECK_EQ(run(&m, &there, &here), 0);
	close_all();
}

/* What protects a unit there does so from here. */
TEST(copy, protection)
{
	struct iscsi_lun_conf conf = { .iqn = OTHER,
				       .name = "disk",
				       .block_bytes = 512,
				       .read_only = true };
	struct scsi_lun *unit;
	struct mock m;

	begin(&m, 0, 1);
	conf.object = there;
	CHECK_EQ(iscsi_lun_set(iscsi, &conf), 0);
	settle();
	CHECK_EQ(run(&m, &here, &there), PROTECTED);
	CHECK_EQ(run(&m, &there, &here), 0);
	conf.read_only = false;
	CHECK_EQ(iscsi_lun_set(iscsi, &conf), 0);
	settle();
	CHECK_EQ(run(&m, &here, &there), 0);
	unit = TAILQ_FIRST(&iscsi->shares[1]->scsi.units);
	CHECK(unit != NULL);
	unit->swp = true; /* its mode page, which its home alone knows */
	CHECK_EQ(run(&m, &here, &there), PROTECTED);
	unit->swp = false;
	CHECK_EQ(run(&m, &here, &there), 0);
	/* A third target shows it, too: as well as anybody does counts. */
	target(STRANGER);
	map(STRANGER, 3, there);
	settle();
	for (unsigned i = 0; i < 2; i++) {
		conf.iqn = i == 0 ? OTHER : STRANGER;
		conf.lun = i == 0 ? 0 : 3;
		conf.read_only = true;
		CHECK_EQ(iscsi_lun_set(iscsi, &conf), 0);
		settle();
		CHECK_EQ(run(&m, &here, &there), i == 0 ? 0 : PROTECTED);
	}
	conf.iqn = OTHER;
	conf.lun = 0;
	conf.read_only = false;
	CHECK_EQ(iscsi_lun_set(iscsi, &conf), 0);
	settle();
	CHECK_EQ(run(&m, &here, &there), 0);
	iscsi_target_unset(iscsi, STRANGER);
	settle();
	/* Another block size than the list says. */
	conf.block_bytes = 4096;
	CHECK_EQ(iscsi_lun_set(iscsi, &conf), 0);
	settle();
	CHECK_EQ(run(&m, &here, &there), 0x052600);
	close_all();
}

/* A unit that is being sanitized at its home, from the beginning on. */
TEST(copy, sanitize)
{
	struct mock m, other;
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0x80 };

	begin(&m, 0, 1);
	LOGIN(&other, 2, OTHER);
	CHECK_EQ(status_of(&other), 0);
	CHECK_EQ(answer(&other, TUR(&other)), 2);
	fake_dom_hold(doms[1], true); /* its mark is not stored yet */
	put_be32(bhs + 16, ++tag);
	bhs[32] = 0x48;
	bhs[33] = 0x02;
	put_pdu(&other, bhs, NULL, 0);
	settle();
	CHECK_EQ(run(&m, &here, &there), UNREACHABLE);
	CHECK_EQ(run(&m, &there, &here), UNREACHABLE);
	fake_dom_hold(doms[1], false);
	settle();
	CHECK_EQ(answer(&other, tag - 2), 0);
	CHECK_EQ(run(&m, &here, &there), 0);
	close_all();
}

/* Whoever holds a reservation there: hosts have no nexus that could. */
TEST(copy, reservation)
{
	struct dom_nexus nexus = { .initiator_port = STRANGER ",i,0x1",
				   .target_port = 1 };
	struct dom_object_open open = { 0 };
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 5 };
	struct io io = { 0 };
	bool done = false;
	struct mock m;

	begin(&m, 2, 0);
	open.data = &done;
	CHECK_EQ(dom_object_open(doms[2], &open, &there, opened), 0);
	test_run(&ts, &done);
	dom_nexus_open(open.object, &nexus);
	io.io.nexus = &nexus;
	CHECK_EQ(dom_reserve(open.object, &io.io, &pr, io_done), 0);
	test_run(&ts, &io.done);
	io.done = false;
	pr = (struct dom_pr){ .action = DOM_PR_RESERVE, .type = 1, .key = 5 };
	CHECK_EQ(dom_reserve(open.object, &io.io, &pr, io_done), 0);
	test_run(&ts, &io.done);
	CHECK_EQ(run(&m, &here, &there), THIRD_PARTY);
	CHECK_EQ(run(&m, &there, &here), 0);
	done = false;
	dom_nexus_close(open.object, &nexus, on_done, &done);
	test_run(&ts, &done);
	dom_object_close(open.object);
	close_all();
}

/* The other's LUN goes, or its target, while a copy reads: it is not written. */
TEST(copy, it_goes)
{
	struct mock m;
	uint32_t itt;

	for (unsigned how = 0; how < 4; how++) {
		begin(&m, 1, 2);
		fake_dom_hold(doms[1], true);
		itt = copy(&m, &here, &there);
		settle();
		CHECK_EQ(m.count, m.taken);
		if (how == 0)
			iscsi_lun_unset(iscsi, OTHER, 0);
		else if (how == 1)
			iscsi_target_unset(iscsi, OTHER);
		else if (how == 2)
			admit(OTHER, STRANGER, NULL, NULL);
		else
			fake_dom_remove(doms[2], &there);
		settle();
		fake_dom_hold(doms[1], false);
		CHECK_EQ(result(&m, itt), UNREACHABLE);
		CHECK_EQ(bytes(1, &there, 8, -1), 0x22);
		close_all();
	}
}

/* Aborts and ends do not wait for a question that is on its way, or a handle. */
TEST(copy, aborted_while_it_waits)
{
	struct mock m;
	uint32_t itt;

	for (unsigned how = 0; how < 4; how++) {
		begin(&m, 0, 1);
		if (how % 2 == 0)
			held = true; /* the question */
		else
			fake_dom_hold(doms[0], true); /* the handle */
		itt = copy(&m, &here, &there);
		settle();
		CHECK_EQ(m.count, m.taken);
		if (how < 2)
			CHECK_EQ(tmf(&m, 1, itt, m.cmdsn - 1), 0);
		else
			iscsi_target_unset(iscsi, IQN);
		settle();
		CHECK_EQ(m.closed, how >= 2);
		let_go();
		fake_dom_hold(doms[0], false);
		settle();
		close_all();
		CHECK_EQ(m.closed, true);
	}
}
