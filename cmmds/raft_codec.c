/*
 * raft_codec: raft's bytes, on the wire (raft.md, 6) and in the store.
 *
 * Little endian throughout.  The core asserts on what it receives, and the
 * packaged one is built without even that, so everything it relies on is
 * checked here (R12): a frame that would break it never gets there.
 */
#include "base/crc.h"
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define FORMAT_MAGIC 0x5453544641524c42ull /* "BLRAFTST" */
#define FRAME_MAX (CMMDS_SNAPSHOT_MAX + CODEC_CONF_MAX + 4096u)

/* ---- bytes ---- */

void *cmmds__alloc(size_t len)
{
	void *p = calloc(1, len ? len : 1);

	if (p == NULL)
		abort();
	return p;
}

void *cmmds__copy(const void *data, size_t len)
{
	void *p = cmmds__alloc(len);

	if (len > 0)
		memcpy(p, data, len);
	return p;
}

static void *message_alloc(void *arg, size_t len)
{
	return cmmds__alloc(len);
}

static void message_free(void *arg, void *p)
{
	free(p);
}

ProtobufCAllocator cmmds__allocator = { message_alloc, message_free, NULL };

void codec__put(struct codec_buf *buf, const void *data, size_t len)
{
	if (buf->len + len > buf->room) {
		buf->room = MAX(buf->room * 2, buf->len + len + 64);
		buf->data = realloc(buf->data, buf->room);
		if (buf->data == NULL)
			abort();
	}
	if (len > 0)
		memcpy(buf->data + buf->len, data, len);
	buf->len += len;
}

void codec__put_u8(struct codec_buf *buf, uint8_t v)
{
	codec__put(buf, &v, sizeof(v));
}

void codec__put_u16(struct codec_buf *buf, uint16_t v)
{
	codec__put(buf, &v, sizeof(v));
}

void codec__put_u32(struct codec_buf *buf, uint32_t v)
{
	codec__put(buf, &v, sizeof(v));
}

void codec__put_u64(struct codec_buf *buf, uint64_t v)
{
	codec__put(buf, &v, sizeof(v));
}

const uint8_t *codec__get(struct codec_cursor *c, size_t len)
{
	const uint8_t *at = c->at;

	if (c->bad || (size_t)(c->end - c->at) < len) {
		c->bad = true;
		return NULL;
	}
	c->at += len;
	return at;
}

uint8_t codec__get_u8(struct codec_cursor *c)
{
	const uint8_t *p = codec__get(c, 1);

	return p ? *p : 0;
}

uint16_t codec__get_u16(struct codec_cursor *c)
{
	const uint8_t *p = codec__get(c, 2);

	return p ? get_le16(p) : 0;
}

uint32_t codec__get_u32(struct codec_cursor *c)
{
	const uint8_t *p = codec__get(c, 4);

	return p ? get_le32(p) : 0;
}

uint64_t codec__get_u64(struct codec_cursor *c)
{
	const uint8_t *p = codec__get(c, 8);

	return p ? get_le64(p) : 0;
}

/* ---- configurations ---- */

int codec__conf_decode(const void *data, size_t len,
		       struct raft_configuration *out)
{
	struct codec_cursor c = { data, (const uint8_t *)data + len, false };
	uint64_t n;

	raft_configuration_init(out);
	if (len > CODEC_CONF_MAX || codec__get_u8(&c) != 1)
		return -EPROTO;
	n = codec__get_u64(&c);
	if (c.bad || n == 0 || n > 1024)
		return -EPROTO;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t id = codec__get_u64(&c);
		const char *address = (const char *)c.at;
		size_t room = (size_t)(c.end - c.at);
		size_t text = c.bad ? 0 : strnlen(address, room);
		int role;

		if (c.bad || id == 0 || text == 0 || text == room)
			goto bad;
		codec__get(&c, text + 1);
		role = codec__get_u8(&c);
		/* Duplicate ids and addresses are refused by the library. */
		if (c.bad || role > RAFT_SPARE ||
		    raft_configuration_add(out, id, address, role) != 0)
			goto bad;
	}
	while (c.at < c.end)
		if (*c.at++ != 0)
			goto bad;
	return 0;

bad:
	raft_configuration_close(out);
	raft_configuration_init(out);
	return -EPROTO;
}

void codec__conf_encode(const struct raft_configuration *conf,
			struct codec_buf *out)
{
	size_t from = out->len;

	codec__put_u8(out, 1);
	codec__put_u64(out, conf->n);
	for (unsigned i = 0; i < conf->n; i++) {
		const struct raft_server *s = &conf->servers[i];

		codec__put_u64(out, s->id);
		codec__put(out, s->address, strlen(s->address) + 1);
		codec__put_u8(out, (uint8_t)s->role);
	}
	while ((out->len - from) % 8 != 0)
		codec__put_u8(out, 0);
}

int codec__conf_copy(const struct raft_configuration *from,
		     struct raft_configuration *to)
{
	raft_configuration_init(to);
	for (unsigned i = 0; i < from->n; i++)
		if (raft_configuration_add(to, from->servers[i].id,
					   from->servers[i].address,
					   from->servers[i].role) != 0)
			abort(); /* memory: the rest was checked before */
	return 0;
}

const struct raft_server *codec__conf_find(const struct raft_configuration *c,
					   raft_id id)
{
	for (unsigned i = 0; i < c->n; i++)
		if (c->servers[i].id == id)
			return &c->servers[i];
	return NULL;
}

unsigned codec__conf_voters(const struct raft_configuration *conf)
{
	unsigned voters = 0;

	for (unsigned i = 0; i < conf->n; i++)
		voters += conf->servers[i].role == RAFT_VOTER;
	return voters;
}

/* ---- messages: encoding ---- */

static void put_append(const struct raft_append_entries *m,
		       const struct log_entry *const *entries,
		       struct codec_buf *out)
{
	codec__put_u8(out, m->version);
	codec__put_u64(out, m->term);
	codec__put_u64(out, m->prev_log_index);
	codec__put_u64(out, m->prev_log_term);
	codec__put_u64(out, m->leader_commit);
	codec__put_u32(out, m->n_entries);
	for (unsigned i = 0; i < m->n_entries; i++) {
		codec__put_u64(out, entries[i]->term);
		codec__put_u8(out, entries[i]->type);
		codec__put_u32(out, entries[i]->len);
		codec__put(out, entries[i]->data, entries[i]->len);
	}
}

static void put_install(const struct raft_install_snapshot *m,
			const struct log_snapshot *snap, struct codec_buf *out)
{
	codec__put_u8(out, m->version);
	codec__put_u64(out, m->term);
	codec__put_u64(out, snap->index);
	codec__put_u64(out, snap->term);
	codec__put_u64(out, snap->conf_index);
	codec__put_u32(out, (uint32_t)snap->conf_len);
	codec__put(out, snap->conf, snap->conf_len);
	codec__put_u32(out, (uint32_t)snap->len);
	codec__put(out, snap->data, snap->len);
}

static void put_result(const struct raft_append_entries_result *m,
		       struct codec_buf *out)
{
	codec__put_u8(out, 2);
	codec__put_u64(out, m->term);
	codec__put_u64(out, m->rejected);
	codec__put_u64(out, m->last_log_index);
	codec__put_u16(out, m->features);
	codec__put_u16(out, m->capacity);
}

static void put_vote(const struct raft_request_vote *m, struct codec_buf *out)
{
	codec__put_u8(out, 2);
	codec__put_u64(out, m->term);
	codec__put_u64(out, m->candidate_id);
	codec__put_u64(out, m->last_log_index);
	codec__put_u64(out, m->last_log_term);
	codec__put_u8(out, (uint8_t)(m->disrupt_leader | m->pre_vote << 1));
}

static void put_vote_result(const struct raft_request_vote_result *m,
			    struct codec_buf *out)
{
	codec__put_u8(out, 2);
	codec__put_u64(out, m->term);
	codec__put_u8(out, (uint8_t)(m->vote_granted | m->pre_vote << 1));
	codec__put_u16(out, m->features);
	codec__put_u16(out, m->capacity);
}

static void put_timeout_now(const struct raft_timeout_now *m,
			    struct codec_buf *out)
{
	codec__put_u8(out, m->version);
	codec__put_u64(out, m->term);
	codec__put_u64(out, m->last_log_index);
	codec__put_u64(out, m->last_log_term);
}

void codec__message_encode(const struct raft_message *msg,
			   const struct log_entry *const *entries,
			   const struct log_snapshot *snap,
			   struct codec_buf *out)
{
	size_t from = out->len;

	codec__put_u32(out, 0);
	codec__put_u8(out, (uint8_t)msg->type);
	switch (msg->type) {
	case RAFT_APPEND_ENTRIES:
		put_append(&msg->append_entries, entries, out);
		break;
	case RAFT_APPEND_ENTRIES_RESULT:
		put_result(&msg->append_entries_result, out);
		break;
	case RAFT_REQUEST_VOTE:
		put_vote(&msg->request_vote, out);
		break;
	case RAFT_REQUEST_VOTE_RESULT:
		put_vote_result(&msg->request_vote_result, out);
		break;
	case RAFT_INSTALL_SNAPSHOT:
		put_install(&msg->install_snapshot, snap, out);
		break;
	case RAFT_TIMEOUT_NOW:
		put_timeout_now(&msg->timeout_now, out);
		break;
	}
	put_le32(out->data + from, (uint32_t)(out->len - from));
}

/* ---- messages: decoding ---- */

static bool entry_sound(const struct raft_append_entries *m, uint64_t before,
			uint64_t term, uint8_t type)
{
	return term != 0 && term >= before && term <= m->term &&
	       type >= RAFT_COMMAND && type <= RAFT_CHANGE;
}

/* A CHANGE whose bytes the core would read past is refused here. */
static bool change_sound(const uint8_t *data, size_t len)
{
	struct raft_configuration conf;

	if (codec__conf_decode(data, len, &conf) != 0)
		return false;
	raft_configuration_close(&conf);
	return true;
}

static int get_append(struct codec_cursor *c, struct raft_append_entries *m)
{
	struct codec_cursor look;
	size_t bytes = 0;
	uint64_t term;
	uint8_t *at;

	m->version = codec__get_u8(c);
	m->term = codec__get_u64(c);
	m->prev_log_index = codec__get_u64(c);
	m->prev_log_term = codec__get_u64(c);
	m->leader_commit = codec__get_u64(c);
	m->n_entries = codec__get_u32(c);
	m->entries = NULL;
	if (c->bad || m->version != 0 || m->term == 0 ||
	    (m->prev_log_index == 0) != (m->prev_log_term == 0) ||
	    m->prev_log_term > m->term || m->n_entries > CODEC_ENTRIES_MAX ||
	    m->prev_log_index > UINT64_MAX - m->n_entries)
		return -EPROTO;
	look = *c;
	term = m->prev_log_term;
	for (unsigned i = 0; i < m->n_entries; i++) {
		uint64_t entry_term = codec__get_u64(&look);
		uint8_t type = codec__get_u8(&look);
		uint32_t len = codec__get_u32(&look);
		const uint8_t *data = codec__get(&look, len);

		if (look.bad || !entry_sound(m, term, entry_term, type) ||
		    (type == RAFT_CHANGE && !change_sound(data, len)))
			return -EPROTO;
		term = entry_term;
		bytes += ROUND_UP((size_t)len, 8) + 8;
	}
	if (look.at != look.end)
		return -EPROTO;
	if (m->n_entries == 0) {
		*c = look;
		return 0;
	}
	m->entries = cmmds__alloc(m->n_entries * sizeof(*m->entries));
	at = raft_malloc(bytes);
	if (at == NULL)
		abort();
	for (unsigned i = 0; i < m->n_entries; i++) {
		struct raft_entry *e = &m->entries[i];

		e->batch = i == 0 ? at : m->entries[0].batch;
		e->term = codec__get_u64(c);
		e->type = codec__get_u8(c);
		e->buf.len = codec__get_u32(c);
		e->buf.base = at;
		memcpy(at, codec__get(c, e->buf.len), e->buf.len);
		at += ROUND_UP(e->buf.len, 8) + 8;
	}
	return 0;
}

static int get_install(struct codec_cursor *c, struct raft_install_snapshot *m)
{
	const uint8_t *conf, *data;
	uint32_t conf_len, len;

	m->version = codec__get_u8(c);
	m->term = codec__get_u64(c);
	m->last_index = codec__get_u64(c);
	m->last_term = codec__get_u64(c);
	m->conf_index = codec__get_u64(c);
	conf_len = codec__get_u32(c);
	conf = codec__get(c, conf_len);
	len = codec__get_u32(c);
	data = codec__get(c, len);
	if (c->bad || c->at != c->end || m->version != 0 || m->term == 0 ||
	    m->last_index == 0 || m->last_term == 0 || m->last_term > m->term ||
	    m->conf_index == 0 || m->conf_index > m->last_index || len == 0)
		return -EPROTO;
	if (codec__conf_decode(conf, conf_len, &m->conf) != 0)
		return -EPROTO;
	m->data.base = raft_malloc(len);
	if (m->data.base == NULL)
		abort();
	m->data.len = len;
	memcpy(m->data.base, data, len);
	return 0;
}

static int get_small(struct codec_cursor *c, struct raft_message *out)
{
	uint8_t version = codec__get_u8(c), flags;
	uint64_t term = codec__get_u64(c);

	switch (out->type) {
	case RAFT_APPEND_ENTRIES_RESULT:
		out->append_entries_result =
			(struct raft_append_entries_result){ .version = version,
							     .term = term };
		out->append_entries_result.rejected = codec__get_u64(c);
		out->append_entries_result.last_log_index = codec__get_u64(c);
		out->append_entries_result.features = codec__get_u16(c);
		out->append_entries_result.capacity = codec__get_u16(c);
		break;
	case RAFT_REQUEST_VOTE:
		out->request_vote =
			(struct raft_request_vote){ .version = version,
						    .term = term };
		out->request_vote.candidate_id = codec__get_u64(c);
		out->request_vote.last_log_index = codec__get_u64(c);
		out->request_vote.last_log_term = codec__get_u64(c);
		flags = codec__get_u8(c);
		out->request_vote.disrupt_leader = flags & 1;
		out->request_vote.pre_vote = flags >> 1 & 1;
		if (out->request_vote.candidate_id == 0 || flags > 3)
			return -EPROTO;
		break;
	case RAFT_REQUEST_VOTE_RESULT:
		out->request_vote_result =
			(struct raft_request_vote_result){ .version = version,
							   .term = term };
		flags = codec__get_u8(c);
		out->request_vote_result.vote_granted = flags & 1;
		out->request_vote_result.pre_vote = flags >> 1 & 1;
		out->request_vote_result.features = codec__get_u16(c);
		out->request_vote_result.capacity = codec__get_u16(c);
		if (flags > 3)
			return -EPROTO;
		break;
	default:
		out->timeout_now =
			(struct raft_timeout_now){ .version = version,
						   .term = term };
		out->timeout_now.last_log_index = codec__get_u64(c);
		out->timeout_now.last_log_term = codec__get_u64(c);
		if (version != 0)
			return -EPROTO;
		version = 2;
	}
	return c->bad || c->at != c->end || version != 2 || term == 0 ? -EPROTO
								      : 0;
}

int codec__message_decode(const uint8_t *frame, size_t len,
			  struct raft_message *out)
{
	struct codec_cursor c = { frame, frame + len, false };
	uint32_t told = codec__get_u32(&c);
	uint8_t type = codec__get_u8(&c);

	memset(out, 0, sizeof(*out));
	if (len > FRAME_MAX)
		return -EMSGSIZE;
	if (c.bad || told != len)
		return -EPROTO;
	out->type = type;
	switch (type) {
	case RAFT_APPEND_ENTRIES:
		return get_append(&c, &out->append_entries);
	case RAFT_INSTALL_SNAPSHOT:
		return get_install(&c, &out->install_snapshot);
	case RAFT_APPEND_ENTRIES_RESULT:
	case RAFT_REQUEST_VOTE:
	case RAFT_REQUEST_VOTE_RESULT:
	case RAFT_TIMEOUT_NOW:
		return get_small(&c, out);
	default:
		return -EPROTO;
	}
}

void codec__message_fini(struct raft_message *msg)
{
	if (msg->type == RAFT_APPEND_ENTRIES &&
	    msg->append_entries.entries != NULL) {
		raft_free(msg->append_entries.entries[0].batch);
		free(msg->append_entries.entries);
		msg->append_entries.entries = NULL;
	} else if (msg->type == RAFT_INSTALL_SNAPSHOT) {
		raft_configuration_close(&msg->install_snapshot.conf);
		raft_free(msg->install_snapshot.data.base);
	}
}

/* ---- records of the store ---- */

static void put_crc(struct codec_buf *out, size_t from)
{
	codec__put_u32(out, crc32c(out->data + from, out->len - from));
}

/* A cursor over a record without its CRC; bad if that does not match. */
static struct codec_cursor record(const void *data, size_t len)
{
	struct codec_cursor c = { data, data, true };

	if (len < 4 ||
	    crc32c(data, len - 4) != get_le32((const uint8_t *)data + len - 4))
		return c;
	c.end = c.at + len - 4;
	c.bad = false;
	return c;
}

void codec__format_encode(const struct store_format *f, struct codec_buf *out)
{
	size_t from = out->len;

	codec__put_u64(out, FORMAT_MAGIC);
	codec__put_u32(out, f->version);
	codec__put_u32(out, f->features);
	codec__put_u64(out, f->store_id);
	codec__put(out, f->store_uuid.b, sizeof(f->store_uuid.b));
	codec__put(out, f->node.b, sizeof(f->node.b));
	put_crc(out, from);
}

int codec__format_decode(const void *data, size_t len, struct store_format *f)
{
	struct codec_cursor c = record(data, len);
	const uint8_t *id;

	if (codec__get_u64(&c) != FORMAT_MAGIC)
		return -EUCLEAN;
	f->version = codec__get_u32(&c);
	f->features = codec__get_u32(&c);
	if (!c.bad && (f->version != STORE_VERSION ||
		       (f->features & ~STORE_FEATURES) != 0))
		return -EMEDIUMTYPE;
	f->store_id = codec__get_u64(&c);
	id = codec__get(&c, sizeof(f->store_uuid.b));
	if (id != NULL)
		memcpy(f->store_uuid.b, id, sizeof(f->store_uuid.b));
	id = codec__get(&c, sizeof(f->node.b));
	if (id != NULL)
		memcpy(f->node.b, id, sizeof(f->node.b));
	return c.bad || c.at != c.end || f->store_id == 0 ? -EUCLEAN : 0;
}

void codec__term_encode(uint64_t term, uint64_t vote, struct codec_buf *out)
{
	size_t from = out->len;

	codec__put_u64(out, term);
	codec__put_u64(out, vote);
	put_crc(out, from);
}

int codec__term_decode(const void *data, size_t len, uint64_t *term,
		       uint64_t *vote)
{
	struct codec_cursor c = record(data, len);

	*term = codec__get_u64(&c);
	*vote = codec__get_u64(&c);
	return c.bad || c.at != c.end ? -EUCLEAN : 0;
}

/* The index is under the CRC, so that an entry under a wrong key shows. */
void codec__entry_encode(uint64_t index, const struct log_entry *entry,
			 struct codec_buf *out)
{
	size_t from = out->len;

	codec__put_u64(out, index);
	codec__put_u64(out, entry->term);
	codec__put_u8(out, entry->type);
	codec__put_u32(out, entry->len);
	codec__put(out, entry->data, entry->len);
	put_crc(out, from);
}

int codec__entry_decode(uint64_t index, const void *data, size_t len,
			struct log_entry *out)
{
	struct codec_cursor c = record(data, len);
	uint64_t told = codec__get_u64(&c);
	const uint8_t *bytes;

	memset(out, 0, sizeof(*out));
	out->term = codec__get_u64(&c);
	out->type = codec__get_u8(&c);
	out->len = codec__get_u32(&c);
	bytes = codec__get(&c, out->len);
	if (c.bad || c.at != c.end || told != index || out->term == 0 ||
	    out->type < RAFT_COMMAND || out->type > RAFT_CHANGE ||
	    (out->type == RAFT_CHANGE && !change_sound(bytes, out->len)))
		return -EUCLEAN;
	out->data = cmmds__copy(bytes, out->len);
	return 0;
}

void codec__snapshot_encode(const struct log_snapshot *snap,
			    struct codec_buf *out)
{
	size_t from = out->len;

	codec__put_u64(out, snap->index);
	codec__put_u64(out, snap->term);
	codec__put_u64(out, snap->conf_index);
	codec__put_u32(out, (uint32_t)snap->conf_len);
	codec__put(out, snap->conf, snap->conf_len);
	codec__put_u32(out, (uint32_t)snap->len);
	codec__put(out, snap->data, snap->len);
	put_crc(out, from);
}

int codec__snapshot_decode(const void *data, size_t len,
			   struct log_snapshot *out)
{
	struct codec_cursor c = record(data, len);
	const uint8_t *conf, *bytes;

	memset(out, 0, sizeof(*out));
	out->index = codec__get_u64(&c);
	out->term = codec__get_u64(&c);
	out->conf_index = codec__get_u64(&c);
	out->conf_len = codec__get_u32(&c);
	conf = codec__get(&c, out->conf_len);
	out->len = codec__get_u32(&c);
	bytes = codec__get(&c, out->len);
	if (c.bad || c.at != c.end || out->index == 0 || out->term == 0 ||
	    out->conf_index == 0 || out->conf_index > out->index ||
	    !change_sound(conf, out->conf_len))
		return -EUCLEAN;
	out->conf = cmmds__copy(conf, out->conf_len);
	out->data = cmmds__copy(bytes, out->len);
	return 0;
}

void codec__snapshot_fini(struct log_snapshot *snap)
{
	free(snap->conf);
	free(snap->data);
	memset(snap, 0, sizeof(*snap));
}
