/*
 * What a directory's store may hold when it is opened.  The input is a list of
 * records, each a byte that says what, a length and bytes; entries, votes,
 * configurations and images get the checksums they need, so that what lies
 * behind them is reached: where log and snapshot meet, the core's start, the
 * commands of the log, the directory's image.  Opening ends, with a directory
 * that can be walked, changed and closed, or with a reason.
 */
#include "base/crc.h"
#include "base/log.h"
#include "cmmds/cmmds_int.h"
#include "tests/lib/memkv.c"
#include "tests/lib/vloop.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define US 7u /* the store's id */
#define HEAD 28u /* of an image: snapshot.c */

static struct vloop loop;
static struct kv *table; /* what the store holds when it is opened */
static uint64_t randomness;

static int table_open(struct env *env, const struct kv_config *config,
		      struct kv **out)
{
	*out = memkv_clone((struct memkv *)table, config->merge);
	return 0;
}

static const struct env_ops ops = {
	VLOOP_OPS,
	VLOOP_WORK_OPS,
	.kv_open = table_open,
};

/* To the end of what is to do now, and a minute of timers. */
static void run_until(const bool *done)
{
	uint64_t end_ns = loop.env.now_ns + 60 * SEC;

	while (vloop_task_turn(&loop) || vloop_work_turn(&loop) ||
	       (!*done && loop.env.now_ns < end_ns && vloop_timer_turn(&loop)))
		;
	assert(*done);
}

/* ---- filling the store ---- */

static void store_put(const void *key, size_t key_len, struct codec_buf *value)
{
	struct kv_batch batch;

	kv_batch_init(&batch);
	kv_batch_put(&batch, kv_slice(key, key_len),
		     kv_slice(value->data, value->len));
	if (kv_apply(table, &batch) != 0)
		abort();
	kv_batch_fini(&batch);
	free(value->data);
	*value = (struct codec_buf){ 0 };
}

/* A member for each byte, which is its role; the first is us. */
static void conf_put(const uint8_t *data, size_t len, struct codec_buf *out)
{
	struct raft_configuration conf;

	raft_configuration_init(&conf);
	for (size_t i = 0; i < MIN(len, (size_t)8); i++) {
		const char address[2] = { (char)('a' + i), '\0' };

		if (raft_configuration_add(&conf, i == 0 ? US : 100 + i,
					   address, data[i] % 3) != 0)
			abort();
	}
	codec__conf_encode(&conf, out);
	raft_configuration_close(&conf);
}

static void entry_put(uint64_t index, uint64_t term, uint8_t type,
		      const uint8_t *data, size_t len)
{
	struct log_entry entry = { .term = term, .type = type };
	struct codec_buf value = { 0 }, bytes = { 0 };
	uint8_t key[9] = { 'l' };

	put_be64(key + 1, index);
	if (type == RAFT_CHANGE)
		conf_put(data, len, &bytes);
	else
		codec__put(&bytes, data, len);
	entry.data = bytes.data;
	entry.len = (uint32_t)bytes.len;
	codec__entry_encode(index, &entry, &value);
	store_put(key, sizeof(key), &value);
	free(bytes.data);
}

/* index, term, conf_index, a role, and a packed directory.Snapshot. */
static void snapshot_put(const uint8_t *data, size_t len)
{
	struct log_snapshot snap = { 0 };
	struct codec_buf value = { 0 }, conf = { 0 };

	if (len < 4)
		return;
	snap.index = data[0];
	snap.term = data[1];
	snap.conf_index = data[2];
	conf_put(data + 3, 1, &conf);
	snap.conf = conf.data;
	snap.conf_len = conf.len;
	snap.len = HEAD + len - 4;
	snap.data = cmmds__alloc(snap.len);
	memcpy(snap.data + HEAD, data + 4, len - 4);
	put_le64(snap.data, 0x504e53544c415342ull);
	put_le32(snap.data + 8, CMMDS_SNAPSHOT_VERSION);
	put_le64(snap.data + 16, len - 4);
	put_le32(snap.data + 24,
		 crc32c_more(crc32c(snap.data, 24), snap.data + HEAD, len - 4));
	codec__snapshot_encode(&snap, &value);
	store_put("s", 1, &value);
	codec__snapshot_fini(&snap);
}

static void fill(const uint8_t *data, size_t size)
{
	struct store_format format = { .version = STORE_VERSION,
				       .store_id = US };
	struct codec_buf value = { 0 };
	uint64_t index = 1, term = 1;

	codec__format_encode(&format, &value);
	store_put("f", 1, &value);
	while (size >= 3) {
		uint8_t what = data[0];
		size_t len = MIN((size_t)get_le16(data + 1), size - 3);

		data += 3;
		switch (what % 6) {
		case 0:
			if (len == 0)
				break;
			codec__put(&value, data + 1, len - 1);
			store_put(data, 1, &value);
			break;
		case 1:
			if (len < 2)
				break;
			term += data[0] / 64;
			entry_put(index++, term, data[1] % 5, data + 2,
				  len - 2);
			break;
		case 2:
			if (len < 2)
				break;
			codec__term_encode(data[0], data[1], &value);
			store_put("m", 1, &value);
			break;
		case 3:
			snapshot_put(data, len);
			break;
		case 4:
			index = len > 0 ? data[0] : 1;
			break;
		default:
			term = len > 0 ? data[0] : 1;
		}
		data += len;
		size -= 3 + len;
	}
}

/* ---- opening it ---- */

struct test {
	struct cmmds *cmmds;
	bool done;
	int status;
};

static void opened(struct cmmds_open *req, int status)
{
	struct test *t = req->data;

	t->done = true;
	t->status = status;
	t->cmmds = status == 0 ? req->opened : NULL;
	assert(status == 0 || req->why[0] != '\0');
}

static void answered(struct cmmds_command *cmd, int status)
{
	*(bool *)cmd->data = true;
}

static void closed(void *arg)
{
	*(bool *)arg = true;
}

static void use(struct cmmds *cmmds)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	struct cmmds_command cmd = { 0 };
	bool done = false;

	p.name = "p";
	cmd.data = &done;
	cmmds_command_init(&cmd);
	cmmds_put(&cmd, CMMDS_POLICY, "p", 1, CMMDS_ANY, &p.base);
	if (cmmds_propose(cmmds, &cmd, 0, answered) == 0) {
		run_until(&done);
	}
	cmmds_command_fini(&cmd);
	for (int kind = 1; kind < CMMDS_KINDS; kind++) {
		const struct cmmds_entry *e = NULL;

		while ((e = cmmds_next(cmmds, (enum cmmds_kind)kind, e)) !=
		       NULL)
			assert(e->message != NULL);
	}
	done = false;
	cmmds_close(cmmds, closed, &done);
	run_until(&done);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cmmds_open req = { 0 };
	struct test t = { 0 };
	struct cmmds_config config = {
		.env = &loop.env,
		.path = "store",
		.incarnation = 1u << 20,
		.snapshot_bytes = 512,
	};

	log_level_set("all", "error");
	if (loop.env.ops == NULL)
		vloop_init(&loop, &ops, 1 << 20, SEC, &randomness);
	randomness = 1;
	table = memkv_clone(NULL, NULL);
	fill(data, size);
	req.data = &t;
	if (cmmds_open(&config, &req, opened) == 0) {
		run_until(&t.done);
		if (t.cmmds != NULL)
			use(t.cmmds);
	}
	kv_close(table);
	return 0;
}
