/* The directory on a real shard and a real store: open, change, hear, reopen. */
#include "base/shard.h"
#include "base/util.h"
#include "cmmds/cmmds_int.h"
#include "tests/lib/test.h"
#include "tests/unit/cmmds_image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct fixture {
	struct test_shard ts;
	char *dir;
	char path[600];
	struct uuid node;
	uint64_t incarnation;
	unsigned snapshot_bytes;
	struct cmmds *cmmds;
	struct cmmds_open open;
	bool done;
	int status;
};

static void on_open(struct cmmds_open *req, int status)
{
	struct fixture *f = req->data;

	f->status = status;
	f->done = true;
}

static int try_open(struct fixture *f, bool found)
{
	struct cmmds_config config = {
		.env = f->ts.env,
		.path = f->path,
		.node = f->node,
		.incarnation = ++f->incarnation,
		.found = found,
		.snapshot_bytes = f->snapshot_bytes,
	};

	f->done = false;
	f->open.data = f;
	CHECK_EQ(cmmds_open(&config, &f->open, on_open), 0);
	CHECK(!f->done);
	test_run(&f->ts, &f->done);
	f->cmmds = f->open.opened;
	return f->status;
}

static void on_close(void *arg)
{
	*(bool *)arg = true;
}

static void shut(struct fixture *f)
{
	f->done = false;
	cmmds_close(f->cmmds, on_close, &f->done);
	test_run(&f->ts, &f->done);
	f->cmmds = NULL;
}

static void begin(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	test_shard_open(&f->ts);
	f->dir = test_dir();
	snprintf(f->path, sizeof(f->path), "%s/directory", f->dir);
	memset(f->node.b, 7, sizeof(f->node.b));
}

static void end(struct fixture *f)
{
	if (f->cmmds != NULL)
		shut(f);
	test_shard_close(&f->ts);
	free(f->dir);
}

static void on_command(struct cmmds_command *cmd, int status)
{
	struct fixture *f = cmd->data;

	f->status = status;
	f->done = true;
}

static int put_policy(struct fixture *f, const char *name, unsigned ftt,
		      uint64_t expect)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	struct cmmds_command cmd = { .data = f };

	p.name = (char *)name;
	p.failures_to_tolerate = ftt;
	cmmds_command_init(&cmd);
	cmmds_put(&cmd, CMMDS_POLICY, name, strlen(name), expect, &p.base);
	cmmds_audit(&cmd, "admin", "policy %s", name);
	f->done = false;
	CHECK_EQ(cmmds_propose(f->cmmds, &cmd, 0, on_command), 0);
	CHECK(!f->done);
	test_run(&f->ts, &f->done);
	cmmds_command_fini(&cmd);
	return f->status;
}

TEST(cmmds_open, found_change_reopen)
{
	struct fixture f;
	struct cmmds_info info;
	uint64_t id, term;

	begin(&f);
	CHECK_EQ(try_open(&f, false), -ENOENT);
	CHECK(f.open.why[0] != '\0');
	CHECK_EQ(try_open(&f, true), 0);
	CHECK(cmmds_session_valid(f.cmmds));
	CHECK_EQ(put_policy(&f, "gold", 1, 0), 0);
	CHECK_EQ(put_policy(&f, "gold", 2, 0), -EEXIST);
	CHECK_EQ(put_policy(&f, "gold", 2, 1), 0);
	CHECK_EQ(put_policy(&f, "gold", 2, 1), -EAGAIN);
	CHECK_EQ(put_policy(&f, "bad name", 2, 0), -EINVAL);
	CHECK_EQ(cmmds_policy(f.cmmds, "gold")->failures_to_tolerate, 2);
	cmmds_info(f.cmmds, &info);
	id = info.store_id;
	term = info.term;
	shut(&f);

	CHECK_EQ(try_open(&f, true), -EEXIST);
	CHECK_EQ(try_open(&f, false), 0);
	CHECK_EQ(cmmds_policy(f.cmmds, "gold")->failures_to_tolerate, 2);
	cmmds_info(f.cmmds, &info);
	CHECK_EQ(info.store_id, id);
	CHECK(info.term > term); /* R2 */
	CHECK_EQ(info.revision, 2);
	shut(&f);

	/* Another node's store. */
	f.node.b[0] = 9;
	CHECK_EQ(try_open(&f, false), -EUCLEAN);
	CHECK(strstr(f.open.why, "is of node") != NULL);
	/* A member's id is drawn: another store has another. */
	strcat(f.path, "2");
	CHECK_EQ(try_open(&f, true), 0);
	cmmds_info(f.cmmds, &info);
	CHECK(info.store_id != id);
	end(&f);
}

struct heard {
	struct cmmds_subscription sub;
	unsigned count, fresh, gone;
	uint64_t last;
	bool done;
};

static void on_change(struct cmmds_subscription *sub,
		      const struct cmmds_change *change)
{
	struct heard *h = sub->data;

	h->count++;
	h->fresh += change->old_entry == NULL;
	h->gone += change->new_entry == NULL;
	if (change->new_entry != NULL) {
		CHECK(change->new_entry->revision >= h->last);
		h->last = change->new_entry->revision;
	}
}

static void on_barrier(struct cmmds_barrier *req, int status)
{
	struct fixture *f = req->data;

	f->status = status;
	f->done = true;
}

TEST(cmmds_open, subscription_and_barrier)
{
	struct fixture f;
	struct heard h = { 0 };
	struct cmmds_barrier bar = { .data = &f };

	begin(&f);
	CHECK_EQ(try_open(&f, true), 0);
	CHECK_EQ(put_policy(&f, "a", 0, 0), 0);
	h.sub.data = &h;
	h.sub.kind = CMMDS_POLICY;
	h.sub.cb = on_change;
	cmmds_subscribe(f.cmmds, &h.sub);
	CHECK_EQ(h.count, 0);
	f.done = false;
	CHECK_EQ(cmmds_barrier(f.cmmds, &bar, on_barrier), 0);
	test_run(&f.ts, &f.done);
	CHECK_EQ(f.status, 0);
	CHECK_EQ(h.count, 1);
	CHECK_EQ(put_policy(&f, "b", 0, 0), 0);
	CHECK_EQ(put_policy(&f, "b", 1, CMMDS_ANY), 0);
	CHECK_EQ(h.count, 3);
	CHECK_EQ(h.fresh, 2);
	cmmds_unsubscribe(&h.sub);
	CHECK_EQ(put_policy(&f, "c", 1, 0), 0);
	CHECK_EQ(h.count, 3);
	end(&f);
}

/* Who leaves others, or itself, or brings others in, from its callback. */
static void on_meddling(struct cmmds_subscription *sub,
			const struct cmmds_change *change)
{
	struct heard *h = sub->data;

	h->count++;
	if (h[2].sub.cb == NULL) {
		h[2].sub.data = &h[2];
		h[2].sub.kind = CMMDS_POLICY;
		h[2].sub.cb = on_change;
		cmmds_subscribe(sub->cmmds, &h[2].sub);
	}
	if (h[1].sub.cmmds != NULL) /* after it comes the new one */
		cmmds_unsubscribe(&h[1].sub);
}

static void on_leaving(struct cmmds_subscription *sub,
		       const struct cmmds_change *change)
{
	struct heard *h = sub->data;

	h->count++;
	cmmds_unsubscribe(sub);
}

TEST(cmmds_open, subscribers_that_come_and_go)
{
	struct fixture f;
	struct heard h[3] = { 0 }, leaving = { 0 };

	begin(&f);
	CHECK_EQ(try_open(&f, true), 0);
	for (unsigned i = 0; i < 2; i++) {
		h[i].sub.data = &h[i];
		h[i].sub.kind = CMMDS_POLICY;
		h[i].sub.cb = i == 0 ? on_meddling : on_change;
		cmmds_subscribe(f.cmmds, &h[i].sub);
	}
	CHECK_EQ(put_policy(&f, "a", 0, 0), 0);
	CHECK_EQ(h[0].count, 1);
	CHECK_EQ(h[1].count, 0); /* it was gone before its turn */
	CHECK_EQ(put_policy(&f, "b", 0, 0), 0);
	CHECK_EQ(h[0].count, 2);
	CHECK_EQ(h[2].count, 2); /* "a" when it was primed, "b" as it came */
	leaving.sub.data = &leaving;
	leaving.sub.kind = CMMDS_POLICY;
	leaving.sub.cb = on_leaving;
	cmmds_subscribe(f.cmmds, &leaving.sub);
	CHECK_EQ(put_policy(&f, "c", 0, 0), 0);
	CHECK_EQ(leaving.count, 1);
	end(&f);
}

static void barrier(struct fixture *f)
{
	struct cmmds_barrier bar = { .data = f };

	f->done = false;
	CHECK_EQ(cmmds_barrier(f->cmmds, &bar, on_barrier), 0);
	test_run(&f->ts, &f->done);
	CHECK_EQ(f->status, 0);
}

/* Snapshots with compaction, and a directory that comes back from one. */
TEST(cmmds_open, compaction_and_reopen)
{
	struct fixture f;
	struct cmmds_info info;
	char name[32];
	uint64_t hash;

	begin(&f);
	f.snapshot_bytes = 4096;
	CHECK_EQ(try_open(&f, true), 0);
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "p%d", i % 20);
		CHECK_EQ(put_policy(&f, name, 0, CMMDS_ANY), 0);
	}
	do { /* it is made beside them */
		barrier(&f);
		cmmds_info(f.cmmds, &info);
	} while (info.snapshot_index == 0 || info.log_entries >= 200);
	hash = state__hash(&f.cmmds->state);
	shut(&f);
	CHECK_EQ(try_open(&f, false), 0);
	CHECK(state__hash(&f.cmmds->state) == hash);
	CHECK(cmmds_policy(f.cmmds, "p19") != NULL);
	CHECK_EQ(f.cmmds->state.counts[CMMDS_EVENT], 200);
	end(&f);
}

/* A snapshot right behind an entry that is no command opens, too. */
TEST(cmmds_open, compaction_behind_a_barrier)
{
	struct fixture f;
	struct cmmds_info info;

	begin(&f);
	f.snapshot_bytes = 1024;
	CHECK_EQ(try_open(&f, true), 0);
	CHECK_EQ(put_policy(&f, "a", 0, 0), 0);
	do {
		barrier(&f);
		cmmds_info(f.cmmds, &info);
	} while (info.snapshot_index == 0);
	shut(&f);
	CHECK_EQ(try_open(&f, false), 0);
	CHECK(cmmds_policy(f.cmmds, "a") != NULL);
	end(&f);
}

/* The larger the image, the more log before the next: half of it. */
TEST(cmmds_open, large_images_are_rare)
{
	Directory__Task t = DIRECTORY__TASK__INIT;
	char note[256] = { 0 };
	struct fixture f;
	struct cmmds_info info;
	uint64_t index;

	begin(&f);
	f.snapshot_bytes = 4096;
	CHECK_EQ(try_open(&f, true), 0);
	memset(note, 'n', sizeof(note) - 1);
	t.verb = "verb";
	t.note = note;
	for (unsigned i = 0; i < 100; i++) {
		struct cmmds_command cmd = { .data = &f };
		struct uuid id = uuid_of(i);

		t.uuid.data = id.b;
		t.uuid.len = sizeof(id.b);
		cmmds_command_init(&cmd);
		cmmds_put(&cmd, CMMDS_TASK, id.b, sizeof(id.b), 0, &t.base);
		f.done = false;
		CHECK_EQ(cmmds_propose(f.cmmds, &cmd, 0, on_command), 0);
		test_run(&f.ts, &f.done);
		CHECK_EQ(f.status, 0);
		cmmds_command_fini(&cmd);
	}
	/* The next image is of all that, some 30 KB; one of less may be under way. */
	cmmds_info(f.cmmds, &info);
	index = info.applied_index;
	do {
		CHECK_EQ(put_policy(&f, "p", 0, CMMDS_ANY), 0);
		cmmds_info(f.cmmds, &info);
	} while (info.snapshot_index < index);
	index = info.snapshot_index;
	for (unsigned i = 0; i < 60; i++) /* more than 4096 bytes */
		CHECK_EQ(put_policy(&f, "p", 0, CMMDS_ANY), 0);
	cmmds_info(f.cmmds, &info);
	CHECK_EQ(info.snapshot_index, index);
	for (unsigned i = 0; i < 300; i++)
		CHECK_EQ(put_policy(&f, "p", 0, CMMDS_ANY), 0);
	cmmds_info(f.cmmds, &info);
	CHECK(info.snapshot_index > index);
	end(&f);
}

/* Put @value under @key behind the directory's back; NULL deletes. */
static void tamper(struct fixture *f, const char *key, size_t key_len,
		   const struct codec_buf *value)
{
	struct kv_config config = { .path = f->path, .log = true };
	struct kv_batch batch;
	struct kv *kv;

	CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
	kv_batch_init(&batch);
	if (value != NULL)
		kv_batch_put(&batch, kv_slice(key, key_len),
			     kv_slice(value->data, value->len));
	else
		kv_batch_delete(&batch, kv_slice(key, key_len));
	CHECK_EQ(kv_apply(kv, &batch), 0);
	kv_batch_fini(&batch);
	kv_close(kv);
}

/* A damaged store is refused with what to do; an unknown one with versions. */
TEST(cmmds_open, damaged_and_unknown)
{
	struct codec_buf buf = { 0 };
	struct store_format format = { .version = 2, .store_id = 1 };
	struct log_entry entry = { .term = 1, .type = RAFT_COMMAND, .len = 1 };
	struct fixture f;
	uint8_t byte = 0;

	begin(&f);
	CHECK_EQ(try_open(&f, true), 0);
	CHECK_EQ(put_policy(&f, "a", 0, 0), 0);
	shut(&f);
	/* Entry 2's bytes under key 3: a wrong place, though whole. */
	entry.data = &byte;
	codec__entry_encode(2, &entry, &buf);
	tamper(&f, "l\0\0\0\0\0\0\0\3", 9, &buf);
	CHECK_EQ(try_open(&f, false), -EUCLEAN);
	CHECK(strstr(f.open.why, "log entry 3") != NULL);
	CHECK(strstr(f.open.why, "backup") != NULL);
	/* A hole. */
	tamper(&f, "l\0\0\0\0\0\0\0\2", 9, NULL);
	CHECK_EQ(try_open(&f, false), -EUCLEAN);
	CHECK(strstr(f.open.why, "log entry 2 is missing") != NULL);
	buf.len = 0;
	codec__format_encode(&format, &buf);
	tamper(&f, "f", 1, &buf);
	CHECK_EQ(try_open(&f, false), -EMEDIUMTYPE);
	CHECK(strstr(f.open.why, "version 2") != NULL);
	CHECK(strstr(f.open.why, "version 1") != NULL);
	free(buf.data);
	end(&f);
}

struct backed {
	struct cmmds_backup req;
	struct store_look look;
	bool done;
	int status;
};

static void on_backup(struct cmmds_backup *req, int status)
{
	struct backed *b = container_of(req, struct backed, req);

	b->status = status;
	b->done = true;
}

static int backup(struct fixture *f, const char *path, struct backed *b)
{
	memset(b, 0, sizeof(*b));
	b->req.path = path;
	CHECK_EQ(cmmds_backup(f->cmmds, &b->req, on_backup), 0);
	CHECK(!b->done);
	CHECK_EQ(cmmds_backup(f->cmmds, &b->req, on_backup), -EBUSY);
	test_run(&f->ts, &b->done);
	return b->status;
}

/* What it holds is what was answered, with and without a snapshot; and it goes on. */
TEST(cmmds_open, backup)
{
	struct fixture f;
	struct backed b;
	struct cmmds_info info;
	char name[32], path[640], own[600];
	uint64_t hash;

	begin(&f);
	f.snapshot_bytes = 16384;
	memcpy(own, f.path, sizeof(own));
	CHECK_EQ(try_open(&f, true), 0);
	for (unsigned round = 0; round < 3; round++) {
		for (int i = 0; i < 30 + 200 * (int)round; i++) {
			snprintf(name, sizeof(name), "p%d", i % 20);
			CHECK_EQ(put_policy(&f, name, round, CMMDS_ANY), 0);
		}
		cmmds_info(f.cmmds, &info);
		CHECK(round != 0 || info.snapshot_index == 0);
		CHECK(round != 2 || info.snapshot_index != 0);
		hash = state__hash(&f.cmmds->state);
		snprintf(path, sizeof(path), "%s/copy.%u", f.dir, round);
		CHECK_EQ(backup(&f, path, &b), 0);
		CHECK_EQ(put_policy(&f, "later", round, CMMDS_ANY), 0);
		shut(&f);
		memcpy(f.path, path, sizeof(f.path) - 1);
		CHECK_EQ(try_open(&f, false), 0);
		CHECK(state__hash(&f.cmmds->state) == hash);
		CHECK_EQ(put_policy(&f, "copied", 0, CMMDS_ANY), 0);
		shut(&f);
		memcpy(f.path, own, sizeof(own));
		CHECK_EQ(try_open(&f, false), 0);
		CHECK_EQ(cmmds_policy(f.cmmds, "later")->failures_to_tolerate,
			 round);
		CHECK(cmmds_policy(f.cmmds, "copied") == NULL);
	}
	/* Where it cannot be made. */
	snprintf(path, sizeof(path), "%s/cut/off", f.dir);
	CHECK_EQ(backup(&f, path, &b), -EIO);
	CHECK_EQ(put_policy(&f, "later", 1, CMMDS_ANY), 0);
	end(&f);
}

static int spoil(struct store_look *look, struct kv *kv)
{
	struct kv_batch batch;
	int rv;

	kv_batch_init(&batch);
	kv_batch_put(&batch, kv_slice("l\0\0\0\0\0\0\0\3", 9),
		     kv_slice("rotten", 6));
	rv = kv_apply(kv, &batch);
	kv_batch_fini(&batch);
	return rv;
}

static void spoilt(struct store_look *look, int status)
{
	struct backed *b = container_of(look, struct backed, look);

	b->status = status;
	b->done = true;
}

/* No copy is made of a damaged store: the one before it is kept. */
TEST(cmmds_open, backup_of_a_damaged_store)
{
	struct fixture f;
	struct backed b = { .look = { .work = spoil, .done = spoilt } };
	char path[640];

	begin(&f);
	CHECK_EQ(try_open(&f, true), 0);
	CHECK_EQ(put_policy(&f, "a", 0, 0), 0);
	CHECK_EQ(store__look(f.cmmds->store_open.store, &b.look), 0);
	test_run(&f.ts, &b.done);
	CHECK_EQ(b.status, 0);
	snprintf(path, sizeof(path), "%s/copy", f.dir);
	CHECK_EQ(backup(&f, path, &b), -EUCLEAN);
	CHECK(strstr(b.req.why, "log entry 3") != NULL);
	CHECK(access(path, F_OK) < 0);
	end(&f);
}

/* Records that are whole each, and that no run of ours leaves side by side. */
struct log_case {
	const char *why; /* NULL: it opens */
	uint64_t term; /* 0: no vote record */
	uint64_t first, terms[4]; /* of the log, to the first 0 */
	uint64_t index, snap_term; /* of the snapshot; 0: none */
	uint64_t image; /* the index its image says; 0: it is no image */
	const char *key; /* and a key that is none of ours */
	bool no_conf; /* the first entry is no configuration */
};

static void log_write(struct fixture *f, const struct log_case *c)
{
	struct store_format format = { .version = STORE_VERSION,
				       .store_id = 77,
				       .node = f->node };
	struct raft_configuration conf;
	struct codec_buf bytes = { 0 }, buf = { 0 };
	char key[10] = "l\0\0\0\0\0\0\0", address[80];

	store__address(&format, address);
	raft_configuration_init(&conf);
	CHECK_EQ(raft_configuration_add(&conf, 77, address, RAFT_VOTER), 0);
	codec__conf_encode(&conf, &bytes);
	raft_configuration_close(&conf);
	for (char i = 1; i < 9; i++) {
		key[8] = i;
		tamper(f, key, 9, NULL);
	}
	codec__format_encode(&format, &buf);
	tamper(f, "f", 1, &buf);
	buf.len = 0;
	codec__term_encode(c->term, 0, &buf);
	tamper(f, "m", 1, c->term != 0 ? &buf : NULL);
	for (unsigned i = 0; i < 4 && c->terms[i] != 0; i++) {
		bool change = i == 0 && !c->no_conf;
		struct log_entry e = { .term = c->terms[i],
				       .type = change ? RAFT_CHANGE
						      : RAFT_BARRIER,
				       .len = change ? (uint32_t)bytes.len : 1,
				       .data = bytes.data };

		buf.len = 0;
		codec__entry_encode(c->first + i, &e, &buf);
		key[8] = (char)(c->first + i);
		tamper(f, key, 9, &buf);
	}
	if (c->index != 0) {
		struct cmmds_state state;
		struct log_snapshot snap = { .index = c->index,
					     .term = c->snap_term,
					     .conf_index = 1,
					     .conf = bytes.data,
					     .conf_len = bytes.len,
					     .data = bytes.data,
					     .len = 1 };

		state__init(&state);
		state.applied_index = c->image;
		if (c->image != 0)
			CHECK_EQ(image_of(&state, &snap.data, &snap.len), 0);

		buf.len = 0;
		codec__snapshot_encode(&snap, &buf);
		tamper(f, "s", 1, &buf);
		if (c->image != 0)
			free(snap.data);
	}
	if (c->key != NULL)
		tamper(f, c->key, strlen(c->key), &buf);
	free(bytes.data);
	free(buf.data);
}

TEST(cmmds_open, logs_that_cannot_be)
{
	static const struct log_case cases[] = {
		{ NULL, 5, 1, { 1, 3, 3 } },
		{ NULL, 5, 3, { 3, 3 }, 2, 3, 2 },
		{ "snapshot is", 5, 3, { 3, 3 }, 2, 3, 1 },
		{ "its term is older than its log", 2, 1, { 1, 3 } },
		{ "without a snapshot", 5, 2, { 1, 3 } },
		{ "no configuration", 5, 1, { 1, 3 }, .no_conf = true },
		{ "terms of its log fall", 5, 1, { 1, 3, 2 } },
		{ "vote record is missing", 0, 1, { 1, 3 } },
		{ "unknown key", 5, 1, { 1, 3 }, .key = "l23" },
		{ "unknown key", 5, 1, { 1, 3 }, .key = "x" },
		{ "older than its snapshot", 2, 3, { 0 }, 2, 3 },
		{ "does not reach", 5, 4, { 3, 3 }, 2, 3 },
		{ "does not reach", 5, 1, { 1, 3 }, 3, 3 },
		{ "log and snapshot disagree", 5, 1, { 1, 3, 3 }, 2, 2 },
		{ "log and snapshot disagree", 5, 3, { 2, 3 }, 2, 3 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture f;
		int want = cases[i].why != NULL ? -EUCLEAN : 0;

		begin(&f);
		CHECK_EQ(try_open(&f, true), 0);
		shut(&f);
		log_write(&f, &cases[i]);
		CHECK_EQ(try_open(&f, false), want);
		if (want != 0)
			CHECK(strstr(f.open.why, cases[i].why) != NULL);
		end(&f);
	}
}

/* One of several voters is open when it has read what it holds, led or not. */
TEST(cmmds_open, one_voter_of_three)
{
	struct log_entry entry = { .term = 1, .type = RAFT_CHANGE };
	struct codec_buf conf = { 0 }, value = { 0 };
	struct raft_configuration c;
	struct cmmds_info info;
	struct fixture f;

	begin(&f);
	CHECK_EQ(try_open(&f, true), 0);
	cmmds_info(f.cmmds, &info);
	shut(&f);
	raft_configuration_init(&c);
	CHECK_EQ(raft_configuration_add(&c, info.store_id, "a", RAFT_VOTER), 0);
	CHECK_EQ(raft_configuration_add(&c, 2, "b", RAFT_VOTER), 0);
	CHECK_EQ(raft_configuration_add(&c, 4, "c", RAFT_VOTER), 0);
	codec__conf_encode(&c, &conf);
	raft_configuration_close(&c);
	entry.data = conf.data;
	entry.len = (uint32_t)conf.len;
	codec__entry_encode(1, &entry, &value);
	tamper(&f, "l\0\0\0\0\0\0\0\1", 9, &value);
	CHECK_EQ(try_open(&f, false), 0);
	CHECK(!cmmds_session_valid(f.cmmds));
	free(conf.data);
	free(value.data);
	end(&f);
}

/* A run whose number was used before, as its file was lost or put back. */
TEST(cmmds_open, incarnation_of_an_earlier_run)
{
	struct fixture f;

	begin(&f);
	f.incarnation = 6;
	CHECK_EQ(try_open(&f, true), 0);
	CHECK_EQ(put_policy(&f, "a", 0, 0), 0);
	shut(&f);
	for (f.incarnation = 0; f.incarnation < 7;) {
		CHECK_EQ(try_open(&f, false), -ESTALE);
		CHECK(strstr(f.open.why, "run 7") != NULL);
	}
	CHECK_EQ(try_open(&f, false), 0);
	CHECK_EQ(put_policy(&f, "b", 0, 0), 0);
	CHECK(cmmds_policy(f.cmmds, "b") != NULL);
	end(&f);
}

/* What newer programs write already is not for an older one to go on with. */
TEST(cmmds_open, feature_level_above_ours)
{
	Directory__Cluster c = DIRECTORY__CLUSTER__INIT;
	struct cmmds_command cmd = { 0 };
	struct fixture f;

	begin(&f);
	c.uuid.data = f.node.b;
	c.uuid.len = sizeof(f.node.b);
	c.name = "c";
	CHECK_EQ(try_open(&f, true), 0);
	for (unsigned above = 0; above <= 1; above++) {
		c.feature_level = CMMDS_FEATURE_LEVEL + above;
		cmd.data = &f;
		cmmds_command_init(&cmd);
		cmmds_put(&cmd, CMMDS_CLUSTER, "", 0, CMMDS_ANY, &c.base);
		f.done = false;
		CHECK_EQ(cmmds_propose(f.cmmds, &cmd, 0, on_command), 0);
		test_run(&f.ts, &f.done);
		CHECK_EQ(f.status, 0);
		cmmds_command_fini(&cmd);
		shut(&f);
		CHECK_EQ(try_open(&f, false), above ? -EMEDIUMTYPE : 0);
	}
	CHECK(f.cmmds == NULL);
	CHECK(strstr(f.open.why, "feature level 2") != NULL);
	end(&f);
}
