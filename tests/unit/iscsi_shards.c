/*
 * The front and its shares: homes, connections that move, what shares are told.
 * All shards are on one loop here, so that each step can be held.
 * limit: 600 s, soak 1800 s		(seeds and how to repeat one: seeds.h)
 */
#include "iscsi/scsi_int.h"
#include "tests/lib/seeds.h"
#include "tests/unit/iscsi_sides.h"

/* There is memory for @spare things as large as this only; 0: for all. */
static size_t scarce;
static unsigned spare;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	if (scarce > 0 && n * size == scarce && spare-- == 0) {
		spare = 0;
		return NULL;
	}
	return __real_calloc(n, size);
}
/* NOLINTEND(bugprone-reserved-identifier) */

struct listing {
	unsigned n, shards; /* a bit each */
	uint64_t last, commands;
};

static void on_session(const struct iscsi_session_info *info, void *arg)
{
	struct listing *l = arg;

	l->n++;
	l->shards |= 1u << info->shard;
	l->last = info->id;
	l->commands += info->commands;
	CHECK_STR(info->initiator, WHO);
	CHECK_STR(info->transport, "mock");
}

static struct listing list(void)
{
	struct listing l = { 0 };

	settle();
	iscsi_session_each(iscsi, on_session, &l);
	return l;
}

/* A login goes where its target's first LUN is, and I/O with it. */
TEST(shards, each_at_home)
{
	struct mock m[SHARDS];

	open_all((struct iscsi_config){ 0 });
	target(IQN);
	for (unsigned i = 0; i < SHARDS; i++) {
		struct uuid id = disk(i, 0);

		map(IQN, 0, id);
		settle();
		in(&m[i], 1, i);
		CHECK_EQ(list().n, 1);
		CHECK_EQ(list().shards, 1u << i);
		CHECK_EQ(list().commands, 2);
		CHECK_EQ(iscsi_object_sessions(iscsi, &id), 1);
		CHECK_EQ(iscsi->away_count, i == 0 ? 0 : 1);
		iscsi_target_unset(iscsi, IQN);
		settle();
		CHECK(m[i].closed);
		CHECK_EQ(list().n, 0);
		CHECK_EQ(iscsi->away_count, 0);
		target(IQN);
	}
	close_all();
}

/* The second LUN does not matter, nor that the first one goes. */
TEST(shards, the_first_decides)
{
	struct mock m;

	open_all((struct iscsi_config){ 0 });
	target(IQN);
	map(IQN, 0, disk(1, 0));
	map(IQN, 1, disk(2, 0));
	iscsi_lun_unset(iscsi, IQN, 0);
	settle();
	LOGIN(&m, 1, IQN);
	CHECK_EQ(status_of(&m), 0);
	CHECK_EQ(shard_of_conn(&m), 1);
	close_all();
	CHECK(m.closed);
}

/* What two targets show is on one shard; the one that is mapped to moves. */
TEST(shards, common_object)
{
	struct mock a, b, again;
	struct uuid first, second;

	open_all((struct iscsi_config){ 0 });
	first = disk(1, 0);
	second = disk(2, 0);
	target(IQN);
	target(OTHER);
	map(IQN, 0, first);
	map(OTHER, 0, second);
	settle();
	in(&a, 1, 1);
	LOGIN(&b, 2, OTHER);
	CHECK_EQ(status_of(&b), 0);
	CHECK_EQ(shard_of_conn(&b), 2);
	b.late = 2;
	map(OTHER, 1, first);
	CHECK(!a.closing);
	turn();
	CHECK(b.closing && !b.closed);
	/* Until it is there nobody can log in, and may try again. */
	LOGIN(&again, 2, OTHER);
	CHECK(!b.closed);
	CHECK_EQ(status_of(&again), 0x0301);
	settle();
	CHECK(b.closed);
	LOGIN(&b, 2, OTHER);
	CHECK_EQ(status_of(&b), 0);
	CHECK_EQ(shard_of_conn(&b), 1);
	CHECK_EQ(answer(&b, TUR(&b)), 2);
	CHECK_EQ(answer(&b, TUR(&b)), 0);
	/* A reset by one is told to the other. */
	CHECK_EQ(tmf(&a, 5, ISCSI_NO_TAG, 0), 0);
	settle();
	{
		uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0x80 };

		bhs[9] = 1; /* LUN 1, where @first is for @b */
		put_be32(bhs + 16, ++tag);
		put_pdu(&b, bhs, NULL, 0);
		CHECK_EQ(answer(&b, tag), 2);
	}
	CHECK_EQ(answer(&b, TUR(&b)), 0);
	close_all();
}

/* Zeroed where no target shows it. */
static struct iscsi_usage usage_of(const struct uuid *id)
{
	struct iscsi_usage usage = { .reads.count = 9 };

	settle();
	if (!iscsi_usage_of(iscsi, id, &usage))
		return (struct iscsi_usage){ 0 };
	CHECK(uuid_equal(&usage.object, id));
	return usage;
}

/* What is done with an object is counted for all targets that show it. */
TEST(shards, usage)
{
	uint64_t since_ns;
	struct mock a, b;
	struct uuid id;

	open_all((struct iscsi_config){ 0 });
	id = disk(1, 0);
	target(IQN);
	target(OTHER);
	map(IQN, 0, id);
	map(OTHER, 0, id);
	settle();
	since_ns = usage_of(&id).since_ns;
	in(&a, 1, 1);
	LOGIN(&b, 2, OTHER);
	CHECK_EQ(status_of(&b), 0);
	CHECK_EQ(answer(&b, TUR(&b)), 2);
	CHECK_EQ(answer(&a, READ10(&a, 0, 8)), 0);
	CHECK_EQ(answer(&b, READ10(&b, 0, 16)), 0);
	CHECK_EQ(usage_of(&id).reads.count, 2);
	CHECK_EQ(usage_of(&id).read_bytes, 24 * 512);
	/* It goes on where one of them is no more, and for the next one. */
	iscsi_lun_unset(iscsi, IQN, 0);
	CHECK_EQ(usage_of(&id).reads.count, 2);
	iscsi_target_unset(iscsi, OTHER);
	CHECK_EQ(usage_of(&id).since_ns, 0);
	map(IQN, 0, id);
	settle();
	for (unsigned i = 0; i < 3; i++) /* 29/00, 3F/03, 3F/0E */
		CHECK_EQ(answer(&a, TUR(&a)), 2);
	CHECK_EQ(answer(&a, TUR(&a)), 0);
	CHECK_EQ(answer(&a, READ10(&a, 0, 8)), 0);
	CHECK_EQ(usage_of(&id).reads.count, 3);
	CHECK_EQ(usage_of(&id).since_ns, since_ns);
	/* Gone for longer, it is counted anew. */
	iscsi_lun_unset(iscsi, IQN, 0);
	settle();
	iscsi->objects_idle.tqh_first->idle_since_ns -= 61 * SEC;
	map(IQN, 0, id);
	settle();
	CHECK_EQ(usage_of(&id).reads.count, 0);
	CHECK(usage_of(&id).since_ns > since_ns);
	close_all();
}

/* All that hangs together goes, and nothing opens before all of it has left. */
TEST(shards, a_chain_moves)
{
	struct mock a, b;
	struct uuid one, two, three;

	open_all((struct iscsi_config){ 0 });
	one = disk(1, 0);
	two = disk(1, 1);
	three = disk(2, 0);
	target(IQN);
	target(OTHER);
	map(IQN, 0, one);
	map(IQN, 1, two);
	map(OTHER, 0, two);
	target("iqn.2026-11.internal.basalt:v");
	map("iqn.2026-11.internal.basalt:v", 0, three);
	settle();
	in(&a, 1, 1);
	LOGIN(&b, 2, OTHER);
	CHECK_EQ(status_of(&b), 0);
	CHECK_EQ(shard_of_conn(&b), 1);
	b.late = 30;
	map(IQN, 2, three);
	settle();
	CHECK(a.closed && !b.closed);
	LOGIN(&a, 1, IQN); /* it has left, but waits for the other */
	CHECK_EQ(status_of(&a), 0x0301);
	settle();
	settle();
	settle();
	CHECK(b.closed);
	in(&a, 1, 2);
	LOGIN(&b, 2, OTHER);
	CHECK_EQ(status_of(&b), 0);
	CHECK_EQ(shard_of_conn(&b), 2);
	close_all();
}

/* An object keeps its shard for a while after its last LUN went. */
TEST(shards, an_object_stays)
{
	struct mock m;
	struct uuid id;

	open_all((struct iscsi_config){ 0 });
	id = disk(2, 0);
	target(IQN);
	map(IQN, 0, disk(1, 0));
	map(IQN, 1, id);
	target(OTHER);
	settle();
	iscsi_lun_unset(iscsi, IQN, 1);
	map(OTHER, 0, id);
	settle();
	LOGIN(&m, 1, OTHER);
	CHECK_EQ(status_of(&m), 0);
	CHECK_EQ(shard_of_conn(&m), 1);
	iscsi_target_unset(iscsi, OTHER);
	settle();
	iscsi->objects_idle.tqh_first->idle_since_ns -= 61 * SEC;
	target(OTHER);
	map(OTHER, 0, id);
	settle();
	LOGIN(&m, 1, OTHER);
	CHECK_EQ(status_of(&m), 0);
	CHECK_EQ(shard_of_conn(&m), 2);
	close_all();
}

static void unstick(struct mock *m)
{
	m->stuck = false;
	env_defer(ts.env, &m->turn);
	turn();
}

/* Between the last PDU of the login and the home, things change. */
TEST(shards, changes_on_the_way)
{
	static const char *const you[] = { STRANGER };
	struct iscsi_target_conf closed = { .iqn = IQN,
					    .allow = you,
					    .allow_count = 1 };
	struct mock m[5];

	open_all((struct iscsi_config){ 0 });
	target(IQN);
	map(IQN, 0, disk(1, 0));
	settle();
	for (unsigned i = 0; i < ARRAY_LEN(m); i++) {
		LOGIN(&m[i], (uint8_t)(i + 1), IQN);
		m[i].stuck = true;
	}
	settle();
	CHECK_EQ(m[0].count, 0);
	CHECK_EQ(iscsi->conns_count, ARRAY_LEN(m));
	/* The initiator goes; the portal goes; then access, then the target. */
	m[0].dm.up->lost(m[0].dm.owner, -ECONNRESET, "gone");
	settle();
	CHECK(m[0].closed);
	held = true;
	unstick(&m[1]);
	CHECK_EQ(waiting_count, 1);
	CHECK_EQ(iscsi->away_count, 1);
	CHECK_EQ(iscsi_target_set(iscsi, &closed), 0);
	CHECK_EQ(iscsi_portal_drop(iscsi, 1, "other"), 0);
	let_go();
	/* It was let in before, and goes with the list. */
	settle();
	CHECK(m[1].closed);
	target(IQN);
	settle();
	unstick(&m[2]);
	CHECK_EQ(status_of(&m[2]), 0);
	held = true;
	unstick(&m[3]);
	iscsi_target_unset(iscsi, IQN);
	unstick(&m[4]);
	let_go();
	CHECK_EQ(status_of(&m[4]), 0x0203);
	CHECK(m[2].closed);
	CHECK(m[3].closed);
	CHECK_EQ(list().n, 0);
	close_all();
}

/* The target leaves while a login waits for its older session to end there. */
TEST(shards, leaves_while_a_login_waits)
{
	struct mock a, b, third;

	open_all((struct iscsi_config){ 0 });
	target(OTHER);
	map(OTHER, 0, disk(1, 0));
	for (unsigned round = 0; round < 2; round++) {
		target(IQN);
		map(IQN, 0, disk(0, round));
		settle();
		in(&a, 1, 0);
		in(&third, 2, 0);
		/* With another session, and as the last one, it goes. */
		third.late = round * 8;
		a.late = 4;
		LOGIN(&b, 1, IQN);
		CHECK(a.closing && !a.closed);
		map(IQN, 1, disk(1, 0));
		settle();
		settle();
		CHECK(a.closed && third.closed);
		CHECK_EQ(status_of(&b), 0x0301);
		in(&a, 1, 1);
		iscsi_target_unset(iscsi, IQN);
		settle();
	}
	close_all();
}

/* One that others wait for leaves, and is removed over it: they go on. */
TEST(shards, removed_as_it_leaves)
{
	struct mock a, b;

	for (unsigned home = 0; home < 2; home++) {
		open_all((struct iscsi_config){ 0 });
		target(IQN);
		target(OTHER);
		target("iqn.2026-11.internal.basalt:v");
		map(IQN, 0, disk(home, 0));
		map(IQN, 1, disk(home, 1));
		map(OTHER, 0, disk(home, 1));
		map("iqn.2026-11.internal.basalt:v", 0, disk(2, 0));
		settle();
		LOGIN(&b, 2, OTHER);
		CHECK_EQ(status_of(&b), 0);
		CHECK_EQ(shard_of_conn(&b), home);
		b.late = 30;
		map(IQN, 2, disk(2, 0));
		settle();
		LOGIN(&a, 1, IQN);
		CHECK_EQ(status_of(&a), 0x0301);
		iscsi_target_unset(iscsi, OTHER);
		for (unsigned i = 0; i < 4; i++)
			settle();
		CHECK(b.closed);
		in(&a, 1, 2);
		close_all();
	}
}

/* The unit that @m's session sees as @lun. */
static struct scsi_lun *unit_of(const struct mock *m, unsigned lun)
{
	struct scsi_target *t = m->dm.owner->session->target->scsi;

	return scsi__lun_find(t, (uint64_t)lun << 48);
}

/*
 * What a target that leaves showed is opened nowhere else before it has left:
 * not by one that is at its next home, nor if it is unmapped, or the target is
 * removed over it.
 */
TEST(shards, opened_when_it_has_left)
{
	struct mock b, c;
	struct uuid x;

	for (unsigned round = 0; round < 4; round++) {
		open_all((struct iscsi_config){ 0 });
		x = disk(1, 0);
		target(IQN);
		target(OTHER);
		map(IQN, 0, disk(2, 0));
		map(IQN, 1, disk(2, 1));
		map(OTHER, 0, x);
		settle();
		in(&c, 1, 2);
		LOGIN(&b, 2, OTHER);
		CHECK_EQ(status_of(&b), 0);
		b.late = 80;
		map(OTHER, 1, disk(2, 0));
		settle();
		CHECK(b.closing && !b.closed);
		if (round == 1)
			iscsi_lun_unset(iscsi, OTHER, 0);
		if (round == 2)
			iscsi_target_unset(iscsi, OTHER);
		map(IQN, round == 3 ? 1 : 2, x);
		settle();
		if (round == 3) /* nor is what it replaces there any more */
			CHECK_EQ(answer(&c, TUR(&c)), 2);
		CHECK(!b.closed);
		CHECK(unit_of(&c, round == 3 ? 1 : 2) == NULL);
		for (unsigned i = 0; i < 8; i++)
			settle();
		CHECK(b.closed);
		CHECK(unit_of(&c, round == 3 ? 1 : 2) != NULL);
		CHECK_EQ(answer(&c, TUR(&c)), 2); /* 3F/0E */
		CHECK_EQ(answer(&c, TUR(&c)), 0);
		close_all();
	}
}

static bool shows(struct scsi_target *t, unsigned lun, const struct uuid *id)
{
	const struct scsi_lun *unit = scsi__lun_find(t, (uint64_t)lun << 48);

	return unit != NULL && uuid_equal(&unit->oid, id);
}

/*
 * What another takes the place of is shown no more, though its home cannot be told
 * of that one, or is left for it: soon it may be shown at another.
 */
TEST(shards, replaced_as_it_leaves)
{
	struct iscsi_lun_conf conf = { .iqn = IQN,
				       .name = "disk",
				       .block_bytes = 512 };
	struct scsi_target *was;
	struct mock a, b;
	struct uuid id;

	for (unsigned round = 0; round < 2; round++) {
		open_all((struct iscsi_config){ 0 });
		id = disk(1, 0);
		target("iqn.2026-11.internal.basalt:v");
		map("iqn.2026-11.internal.basalt:v", 0, disk(2, 0));
		map("iqn.2026-11.internal.basalt:v", 1, disk(2, 1));
		target(IQN);
		map(IQN, 0, id);
		settle();
		in(&a, 1, 1);
		was = a.dm.owner->session->target->scsi;
		CHECK(shows(was, 0, &id));
		a.late = 200;
		if (round == 0) {
			conf.object = disk(1, 1);
			scarce = sizeof(struct iscsi_message);
			spare = 1; /* for its end, and not for its beginning */
			CHECK_EQ(iscsi_lun_set(iscsi, &conf), -ENOMEM);
			scarce = 0;
		}
		map(IQN, round == 0 ? 1 : 0, disk(2, 0));
		target(OTHER);
		map(OTHER, 0, id);
		settle();
		map(OTHER, 1, disk(2, 1));
		settle();
		LOGIN(&b, 2, OTHER);
		CHECK_EQ(status_of(&b), 0);
		CHECK_EQ(shard_of_conn(&b), 2);
		CHECK(unit_of(&b, 0) != NULL);
		CHECK(!a.closed);
		CHECK(!shows(was, 0, &id));
		for (unsigned i = 0; i < 30; i++)
			settle();
		CHECK(a.closed);
		in(&a, 1, 2);
		CHECK(!shows(a.dm.owner->session->target->scsi, 0, &id));
		close_all();
	}
}

/* Nor is one opened elsewhere that its home knows by its former name only. */
TEST(shards, renamed_as_it_leaves)
{
	struct iscsi_lun_conf conf = { .iqn = IQN,
				       .name = "another",
				       .block_bytes = 512 };
	struct mock a, b;

	open_all((struct iscsi_config){ 0 });
	conf.object = disk(1, 0);
	target("iqn.2026-11.internal.basalt:v");
	map("iqn.2026-11.internal.basalt:v", 0, disk(2, 0));
	target(IQN);
	map(IQN, 0, conf.object);
	target(OTHER);
	map(OTHER, 0, conf.object);
	settle();
	in(&a, 1, 1);
	a.late = 200;
	scarce = sizeof(struct iscsi_message);
	spare = 1;
	CHECK_EQ(iscsi_lun_set(iscsi, &conf), -ENOMEM);
	scarce = 0;
	map(IQN, 1, disk(2, 0)); /* both go, and this one has nobody */
	settle();
	LOGIN(&b, 2, OTHER);
	CHECK_EQ(status_of(&b), 0x0301);
	CHECK(!a.closed);
	for (unsigned i = 0; i < 30; i++)
		settle();
	CHECK(a.closed);
	LOGIN(&b, 2, OTHER);
	CHECK_EQ(status_of(&b), 0);
	CHECK_EQ(shard_of_conn(&b), 2);
	CHECK_STR(unit_of(&b, 0)->name, "disk");
	in(&a, 1, 2);
	CHECK_STR(unit_of(&a, 0)->name, "another");
	close_all();
}

/* A second login of a nexus ends the first one, there. */
TEST(shards, reinstatement)
{
	struct mock a, b, c;

	open_all((struct iscsi_config){ 0 });
	target(IQN);
	map(IQN, 0, disk(2, 0));
	settle();
	in(&a, 1, 2);
	in(&b, 1, 2);
	CHECK(a.closed);
	CHECK_EQ(list().n, 1);
	/* Its target goes while it waits: it may come again, and hears so. */
	b.late = 20;
	LOGIN(&a, 1, IQN);
	settle();
	CHECK(b.closing && !b.closed);
	/* So may a third one; it is no limit that stands in its way. */
	LOGIN(&c, 1, IQN);
	CHECK_EQ(status_of(&c), 0x0301);
	CHECK_EQ(iscsi->refused.now.busy, 0);
	iscsi_target_unset(iscsi, IQN);
	settle();
	CHECK_EQ(status_of(&a), 0x0301);
	close_all();
}

/* The older session ends, with its target; a new one has its name and disk. */
TEST(shards, made_anew)
{
	struct mock a, b;

	open_all((struct iscsi_config){ 0 });
	target(IQN);
	map(IQN, 0, disk(1, 0));
	settle();
	in(&a, 1, 1);
	a.late = 40;
	iscsi_target_unset(iscsi, IQN);
	target(IQN);
	map(IQN, 1, disk(2, 0));
	map(IQN, 0, disk(1, 0)); /* an object that had a home: it is there */
	settle();
	LOGIN(&b, 1, IQN);
	settle();
	CHECK(!a.closed);
	CHECK_EQ(b.count, 0);
	while (!a.closed)
		settle();
	CHECK_EQ(status_of(&b), 0);
	CHECK_EQ(shard_of_conn(&b), 1);
	close_all();
}

TEST(shards, what_shares_are_told)
{
	struct sockaddr_in any4 = { .sin_family = AF_INET,
				    .sin_port = htons(3261) };
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_TEXT, ISCSI_FINAL };
	struct mock a, b;
	struct seen *s;

	open_all((struct iscsi_config){ 0 });
	target(IQN);
	map(IQN, 0, disk(1, 0));
	CHECK_EQ(iscsi_portal_declare(iscsi, 2, (struct sockaddr *)&any4, 7),
		 0);
	settle();
	in(&a, 1, 1);
	in(&b, 2, 1);
	/* Its own target has two addresses. */
	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, ISCSI_NO_TAG);
	put_pdu(&a, bhs, "SendTargets=", 13);
	s = next(&a);
	CHECK(s != NULL && s->bhs[0] == ISCSI_OP_TEXT_RSP);
	CHECK(memmem(s->data, s->len, ":3261,7", 7) != NULL);
	CHECK_EQ(iscsi_portal_remove(iscsi, 2), 0);
	settle();
	put_be32(bhs + 16, ++tag);
	put_pdu(&a, bhs, "SendTargets=", 13);
	s = next(&a);
	CHECK(memmem(s->data, s->len, ":3261,7", 7) == NULL);
	CHECK_EQ(answer(&a, TUR(&a)), 2); /* 3F/03 */
	CHECK_EQ(answer(&a, TUR(&a)), 0);
	/* A LUN more, and one less. */
	map(IQN, 3, disk(2, 0));
	settle();
	CHECK_EQ(answer(&a, TUR(&a)), 2); /* 3F/0E */
	CHECK_EQ(answer(&a, TUR(&a)), 0);
	iscsi_lun_unset(iscsi, IQN, 3);
	settle();
	CHECK_EQ(answer(&a, TUR(&a)), 2);
	/* One session, then what came by the portal. */
	CHECK_EQ(iscsi_session_drop(iscsi, 4711), -ENOENT);
	CHECK_EQ(iscsi_session_drop(iscsi, list().last), 0);
	CHECK_EQ(iscsi_session_drop(iscsi, b.dm.owner->session->id), -ENOENT);
	settle();
	CHECK(b.closed && !a.closing);
	CHECK_EQ(list().n, 1);
	CHECK_EQ(iscsi_portal_drop(iscsi, 1, "other"), 0);
	settle();
	CHECK(!a.closing);
	CHECK_EQ(iscsi_portal_drop(iscsi, 1, "mock"), 0);
	settle();
	CHECK(a.closed);
	close_all();
}

/* A share has no memory for a LUN: what is told of that target waits for it. */
TEST(shards, a_share_waits_for_memory)
{
	struct iscsi *share;
	struct mock a, b, c;

	open_all((struct iscsi_config){ 0 });
	share = iscsi->shares[1];
	target(IQN);
	map(IQN, 0, disk(1, 0));
	settle();
	in(&a, 1, 1);
	in(&b, 2, 1);
	in(&c, 3, 1);
	scarce = sizeof(struct scsi_lun);
	map(IQN, 1, disk(1, 1));
	map(IQN, 2, disk(1, 2));
	settle();
	CHECK(!TAILQ_EMPTY(&share->messages));
	/* Sessions are ended meanwhile; of a portal all, or none. */
	scarce = sizeof(struct iscsi_message);
	spare = 1; /* for one share, not for the other */
	CHECK_EQ(iscsi_portal_drop(iscsi, 1, "mock"), -ENOMEM);
	CHECK_EQ(iscsi_portal_remove(iscsi, 1), -ENOMEM);
	settle();
	CHECK(!a.closing && !b.closing && !c.closing);
	scarce = sizeof(struct scsi_lun);
	CHECK_EQ(iscsi_session_drop(iscsi, list().last), 0);
	settle();
	CHECK(c.closed && !a.closing);
	CHECK_EQ(iscsi_portal_drop(iscsi, 1, "mock"), 0);
	settle();
	CHECK(a.closed && b.closed);
	CHECK(!TAILQ_EMPTY(&share->messages));
	scarce = 0;
	share->message_timer.cb(&share->message_timer);
	CHECK(TAILQ_EMPTY(&share->messages));
	LOGIN(&a, 1, IQN);
	CHECK_EQ(status_of(&a), 0);
	CHECK(unit_of(&a, 1) != NULL && unit_of(&a, 2) != NULL);
	/* The end comes, whether there is memory or not. */
	scarce = sizeof(struct scsi_lun);
	map(IQN, 3, disk(1, 3));
	settle();
	CHECK(!TAILQ_EMPTY(&share->messages));
	close_all();
	scarce = 0;
	CHECK(a.closed);
}

static uint32_t logout(struct mock *m)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x40 | ISCSI_OP_LOGOUT, 0x80 };

	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 24, m->cmdsn);
	put_pdu(m, bhs, NULL, 0);
	return tag;
}

/* A session's end must not want for memory. */
TEST(shards, sessions_end_without_memory)
{
	struct mock a, b;

	open_all((struct iscsi_config){ 0 });
	target(IQN);
	map(IQN, 0, disk(1, 0));
	settle();
	in(&a, 1, 1);
	in(&b, 2, 1);
	scarce = sizeof(struct scsi_nexus_closing);
	a.dm.up->lost(a.dm.owner, -ECONNRESET, "gone");
	(void)logout(&b);
	settle();
	CHECK(a.closed && b.closed);
	CHECK_EQ(list().n, 0);
	scarce = 0;
	close_all();
}

/* A unit that had no memory for who logs in is busy for as long as that. */
TEST(shards, a_unit_that_had_no_memory)
{
	struct mock a;

	open_all((struct iscsi_config){ 0 });
	target(IQN);
	map(IQN, 0, disk(1, 0));
	settle();
	scarce = sizeof(struct scsi_it_lun);
	LOGIN(&a, 1, IQN);
	CHECK_EQ(status_of(&a), 0);
	CHECK_EQ(answer(&a, TUR(&a)), SCSI_BUSY);
	CHECK_EQ(answer(&a, TUR(&a)), SCSI_BUSY);
	scarce = 0;
	CHECK_EQ(answer(&a, TUR(&a)), SCSI_CHECK_CONDITION); /* 29/00 */
	CHECK_EQ(answer(&a, TUR(&a)), SCSI_GOOD);
	CHECK_EQ(answer(&a, READ10(&a, 0, 8)), SCSI_GOOD);
	close_all();
}

static void admit(const char *iqn, const char *initiator)
{
	struct iscsi_target_conf conf = { .iqn = iqn,
					  .allow = &initiator,
					  .allow_count = 1 };

	CHECK_EQ(iscsi_target_set(iscsi, &conf), 0);
	settle();
}

/* Who is shut out goes at once, a target that was made anew meanwhile or not. */
TEST(shards, access_does_not_wait_for_memory)
{
	struct iscsi *share;
	struct mock a, b;

	open_all((struct iscsi_config){ 0 });
	share = iscsi->shares[1];
	target(IQN);
	map(IQN, 0, disk(1, 0));
	settle();
	in(&a, 1, 1);
	scarce = sizeof(struct scsi_lun);
	map(IQN, 1, disk(1, 1));
	settle();
	CHECK(!TAILQ_EMPTY(&share->messages));
	admit(IQN, STRANGER);
	CHECK(a.closed);
	CHECK(!TAILQ_EMPTY(&share->messages));
	/* This one takes the place of one that is to go: it keeps its turn. */
	admit(IQN, "any");
	in(&b, 2, 1);
	iscsi_target_unset(iscsi, IQN);
	target(IQN);
	map(IQN, 0, disk(1, 0));
	settle();
	admit(IQN, STRANGER);
	CHECK(!b.closing);
	scarce = 0;
	share->message_timer.cb(&share->message_timer);
	settle();
	CHECK(TAILQ_EMPTY(&share->messages));
	CHECK(b.closed);
	LOGIN(&a, 1, IQN);
	CHECK_EQ(status_of(&a), 0x0202);
	CHECK(!iscsi__target_admits(iscsi__target_find(share, IQN), WHO));
	close_all();
}

/* Places are counted over all shards; discovery makes room. */
TEST(shards, sessions_max)
{
	static const char text[] =
		"InitiatorName=" WHO "\0SessionType=Discovery\0";
	struct mock a, b, c;

	open_all((struct iscsi_config){ .sessions_max = 2 });
	target(IQN);
	map(IQN, 0, disk(1, 0));
	settle();
	in(&a, 1, 1);
	login_text(&c, 9, text, sizeof(text) - 1);
	CHECK_EQ(status_of(&c), 0);
	CHECK_EQ(shard_of_conn(&c), 0);
	in(&b, 2, 1);
	CHECK(c.closed);
	LOGIN(&c, 3, IQN);
	CHECK_EQ(status_of(&c), 0x0302);
	/* Who takes the place of his own session needs none. */
	in(&c, 2, 1);
	CHECK(b.closed && !a.closing);
	close_all();
}

/* Those count that are on their way, and those that only end any more. */
TEST(shards, sessions_max_to_and_from)
{
	struct mock m[4];

	open_all((struct iscsi_config){ .sessions_max = 2 });
	target(IQN);
	map(IQN, 0, disk(1, 0));
	settle();
	for (unsigned i = 0; i < 3; i++) {
		LOGIN(&m[i], (uint8_t)(i + 1), IQN);
		m[i].stuck = true;
	}
	settle();
	for (unsigned i = 0; i < 2; i++) {
		unstick(&m[i]);
		CHECK_EQ(status_of(&m[i]), 0);
	}
	CHECK_EQ(m[2].seen[0].bhs[36], 3);
	CHECK(m[2].closed);
	/* The dom does not let go of what they began; nor do their sessions. */
	fake_dom_stubborn(doms[1], true);
	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQ(answer(&m[i], TUR(&m[i])), 2);
		fake_dom_hold(doms[1], true);
		READ10(&m[i], 0, 8);
		settle();
		m[i].dm.up->lost(m[i].dm.owner, -ECONNRESET, "gone");
		settle();
		CHECK(m[i].closed);
		CHECK_EQ(iscsi->away_count, 1 - i);
		LOGIN(&m[3], 9, IQN);
		CHECK_EQ(status_of(&m[3]), 0x0302);
	}
	fake_dom_hold(doms[1], false);
	settle();
	for (unsigned i = 0; i < 2; i++)
		in(&m[i], (uint8_t)(i + 3), 1);
	close_all();
	CHECK(m[0].closed && m[1].closed);
}

/* ---- places, at random ---- */

#define SLOTS 12u

static void slot_login(struct mock *m)
{
	static const char text[] =
		"InitiatorName=" WHO "\0SessionType=Discovery\0";
	uint8_t isid = (uint8_t)below(8); /* some have a session already */

	if (one_in(8))
		login_text(m, isid, text, sizeof(text) - 1);
	else if (one_in(3))
		LOGIN(m, isid, OTHER);
	else
		LOGIN(m, isid, IQN);
	m->stuck = one_in(4);
	m->late = below(16);
}

static void slot_lose(struct mock *m)
{
	if (m->detaching) { /* it is not, before it is told of */
		m->stuck = false;
		env_defer(ts.env, &m->turn);
	} else if (!m->closing && m->dm.owner->state != CONN_MOVE) {
		m->dm.up->lost(m->dm.owner, -ECONNRESET, "gone");
	}
}

/* The connection goes on where it was stuck, has a command to do, or ends. */
static void slot_step(struct mock *m)
{
	const struct iscsi_conn *conn = m->dm.owner;

	if (m->closing)
		return;
	if (!m->detaching && conn->state == CONN_FULL && one_in(2)) {
		if (!conn->session->discovery)
			READ10(m, 0, 8);
	} else {
		slot_lose(m);
	}
}

static void targets_step(void)
{
	static const char *const iqns[] = { IQN, OTHER };

	switch (below(12)) {
	case 0:
		iscsi_target_unset(iscsi, iqns[below(2)]);
		break;
	case 1:
	case 2:
	case 3:
		target(IQN);
		map(IQN, 0, disk(1 + below(2), 0));
		break;
	case 4:
		target(OTHER);
		map(OTHER, 0, disk(2, 1));
		map(OTHER, 1, disk(0, 0));
		break;
	case 5:
		target(IQN);
		map(IQN, 1, one_in(4) ? disk(2, 1) : disk(0, 0));
		break;
	case 6:
		CHECK_EQ(iscsi_portal_drop(iscsi, 1, "mock"), 0);
		break;
	case 7:
		(void)iscsi_session_drop(iscsi,
					 iscsi->session_id_last - below(8));
		break;
	case 8:
		held = true;
		break;
	case 9:
		fake_dom_hold(doms[1], one_in(2));
		break;
	default:
		let_go();
		break;
	}
}

static void places(void)
{
	struct mock m[SLOTS + 1] = { 0 };

	open_all((struct iscsi_config){ .sessions_max = SLOTS });
	for (unsigned n = 0; n < SLOTS; n++)
		m[n].closed = true;
	for (unsigned step = 0; step < 400; step++) {
		struct mock *one = &m[below(SLOTS)];

		if (one->closed)
			slot_login(one);
		else
			slot_step(one);
		if (one_in(8))
			targets_step();
		if (waiting_count > ARRAY_LEN(waiting) / 2)
			let_go();
		if (one_in(2))
			turn();
	}
	let_go();
	fake_dom_hold(doms[1], false);
	for (unsigned i = 0; i < 20; i++) {
		for (unsigned n = 0; n < SLOTS; n++)
			if (!m[n].closed)
				slot_lose(&m[n]);
		settle();
	}
	CHECK_EQ(iscsi->sessions_count + iscsi->guests_count, 0);
	CHECK_EQ(iscsi->conns_count + iscsi->away_count, 0);
	CHECK(TAILQ_EMPTY(&iscsi->entries));
	/* As many as there are places find one, and no more. */
	target(IQN);
	map(IQN, 0, disk(1, 0));
	for (unsigned i = 0; i < 4; i++)
		settle();
	for (unsigned n = 0; n <= SLOTS; n++) {
		LOGIN(&m[n], (uint8_t)(n + 1), IQN);
		CHECK_EQ(status_of(&m[n]), n < SLOTS ? 0 : 0x0302);
	}
	close_all();
}

/* However logins and sessions end, what counted is counted off. */
TEST(shards, places_at_random)
{
	log_level_set("iscsi", "error");
	seeds_run(200, 20000, places);
	log_level_set("iscsi", "info");
}

/* One share is closed, another is not: nothing is told to either any more. */
TEST(shards, portals_change_at_the_end)
{
	struct mock m;
	bool done = false;

	open_all((struct iscsi_config){ 0 });
	target(IQN);
	map(IQN, 0, disk(2, 0));
	settle();
	in(&m, 1, 2);
	iscsi_close(iscsi, 1000, on_done, &done);
	settle();
	CHECK(iscsi->shares[1] == NULL && iscsi->shares[2] != NULL);
	/* As if there had been no memory for it earlier. */
	iscsi->portals_due = true;
	iscsi->tell.cb(&iscsi->tell);
	CHECK_EQ(iscsi_portal_drop(iscsi, 1, "other"), 0);
	CHECK_EQ(iscsi_portal_remove(iscsi, 1), 0);
	test_run(&ts, &done);
	iscsi = NULL;
	CHECK(m.closed);
	close_all();
}

/* The end, with a session on each shard and a login on its way. */
TEST(shards, close)
{
	struct mock m[SHARDS], late;
	bool done = false;

	for (unsigned round = 0; round < 4; round++) {
		open_all((struct iscsi_config){ 0 });
		for (unsigned i = 0; i < SHARDS; i++) {
			target(IQN);
			iscsi_lun_unset(iscsi, IQN, 0);
			settle();
		}
		map(IQN, 0, disk(1, 0));
		target(OTHER);
		map(OTHER, 0, disk(2, 0));
		settle();
		in(&m[0], 1, 1);
		if (round > 0) {
			LOGIN(&m[1], 1, OTHER);
			CHECK_EQ(status_of(&m[1]), 0);
			LOGIN(&late, 2, IQN);
		} else { /* to a share that closes at once */
			LOGIN(&late, 2, OTHER);
			late.stuck = true;
			m[1].closed = true;
		}
		for (unsigned i = 0; i < round; i++)
			turn();
		done = false;
		if (round == 3) /* a target that moves just now */
			map(OTHER, 1, disk(1, 0));
		iscsi_close(iscsi, 1000, on_done, &done);
		settle();
		CHECK(!done);
		if (round == 0) {
			late.stuck = false;
			env_defer(ts.env, &late.turn);
		}
		test_run(&ts, &done);
		iscsi = NULL;
		CHECK(m[0].closed && m[1].closed && late.closed);
		close_all();
	}
}
