/*
 * Raft's bytes: what is written is read back the same, and what comes from a
 * wire or a disk damaged is refused or is a message that the core can bear.
 */
#include "cmmds/cmmds_int.h"
#include "tests/lib/pattern.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdlib.h>

static void conf_make(struct raft_configuration *conf, unsigned n)
{
	char address[24];

	raft_configuration_init(conf);
	for (unsigned i = 0; i < n; i++) {
		snprintf(address, sizeof(address), "address-%u", i);
		CHECK_EQ(raft_configuration_add(conf, 100 + i, address,
						(int)i % 3),
			 0);
	}
}

#define ENTRIES 4u

/* One message of every type, with all it can carry. */
struct sample {
	struct raft_message msg;
	struct log_entry entries[ENTRIES];
	const struct log_entry *list[ENTRIES];
	struct log_snapshot snap;
	struct codec_buf conf, frame;
};

static void sample_make(struct sample *s, int type)
{
	struct raft_configuration conf;
	struct raft_message *m = &s->msg;

	memset(s, 0, sizeof(*s));
	conf_make(&conf, 3);
	codec__conf_encode(&conf, &s->conf);
	raft_configuration_close(&conf);
	m->type = (unsigned short)type;
	for (unsigned i = 0; i < ENTRIES; i++) {
		s->entries[i].term = 5 + i / 2;
		s->entries[i].type = (uint8_t)(1 + i % 3);
		s->entries[i].len = i == 2 ? (uint32_t)s->conf.len : i * 7;
		s->entries[i].data =
			i == 2 ? s->conf.data
			       : (uint8_t *)"abcdefghijklmnopqrstuvw";
		s->list[i] = &s->entries[i];
	}
	switch (type) {
	case RAFT_APPEND_ENTRIES:
		m->append_entries.term = 9;
		m->append_entries.prev_log_index = 20;
		m->append_entries.prev_log_term = 5;
		m->append_entries.leader_commit = 19;
		m->append_entries.n_entries = ENTRIES;
		break;
	case RAFT_APPEND_ENTRIES_RESULT:
		m->append_entries_result =
			(struct raft_append_entries_result){ .version = 2,
							     .term = 9,
							     .rejected = 3,
							     .last_log_index =
								     2,
							     .features = 1,
							     .capacity = 7 };
		break;
	case RAFT_REQUEST_VOTE:
		m->request_vote =
			(struct raft_request_vote){ .version = 2,
						    .term = 9,
						    .candidate_id = 77,
						    .last_log_index = 4,
						    .last_log_term = 3,
						    .disrupt_leader = true,
						    .pre_vote = true };
		break;
	case RAFT_REQUEST_VOTE_RESULT:
		m->request_vote_result =
			(struct raft_request_vote_result){ .version = 2,
							   .term = 9,
							   .vote_granted = true,
							   .pre_vote = true,
							   .features = 1,
							   .capacity = 3 };
		break;
	case RAFT_INSTALL_SNAPSHOT:
		m->install_snapshot.term = 9;
		s->snap.index = 40;
		s->snap.term = 8;
		s->snap.conf_index = 23;
		s->snap.conf = s->conf.data;
		s->snap.conf_len = s->conf.len;
		s->snap.data = (uint8_t *)"the whole directory";
		s->snap.len = 19;
		break;
	default:
		m->timeout_now.term = 9;
		m->timeout_now.last_log_index = 8;
		m->timeout_now.last_log_term = 7;
	}
	codec__message_encode(m, s->list, &s->snap, &s->frame);
}

static void sample_fini(struct sample *s)
{
	free(s->conf.data);
	free(s->frame.data);
}

/* Encode what was decoded: the same bytes, if nothing was lost. */
static void same_again(const struct raft_message *m, const struct sample *s)
{
	struct codec_buf again = { 0 }, conf = { 0 };
	struct log_entry entries[ENTRIES];
	const struct log_entry *list[ENTRIES];
	struct log_snapshot snap = { 0 };

	if (m->type == RAFT_APPEND_ENTRIES) {
		CHECK_EQ(m->append_entries.n_entries, ENTRIES);
		for (unsigned i = 0; i < ENTRIES; i++) {
			const struct raft_entry *e =
				&m->append_entries.entries[i];

			entries[i] = (struct log_entry){
				.term = e->term,
				.type = (uint8_t)e->type,
				.len = (uint32_t)e->buf.len,
				.data = e->buf.base,
			};
			list[i] = &entries[i];
			CHECK(e->batch == m->append_entries.entries[0].batch);
			CHECK_EQ((uintptr_t)e->buf.base % 8, 0);
		}
	} else if (m->type == RAFT_INSTALL_SNAPSHOT) {
		codec__conf_encode(&m->install_snapshot.conf, &conf);
		snap.index = m->install_snapshot.last_index;
		snap.term = m->install_snapshot.last_term;
		snap.conf_index = m->install_snapshot.conf_index;
		snap.conf = conf.data;
		snap.conf_len = conf.len;
		snap.data = m->install_snapshot.data.base;
		snap.len = m->install_snapshot.data.len;
	}
	codec__message_encode(m, list, &snap, &again);
	CHECK_EQ(again.len, s->frame.len);
	CHECK_EQ(memcmp(again.data, s->frame.data, again.len), 0);
	free(again.data);
	free(conf.data);
}

#define EACH_TYPE(t)                                                           \
	int t = RAFT_APPEND_ENTRIES;                                           \
	t <= RAFT_TIMEOUT_NOW;                                                 \
	t++

TEST(cmmds_codec, every_message_round_trip)
{
	for (EACH_TYPE(type)) {
		struct raft_message out;
		struct sample s;

		sample_make(&s, type);
		CHECK_EQ(codec__message_decode(s.frame.data, s.frame.len, &out),
			 0);
		CHECK_EQ(out.type, type);
		same_again(&out, &s);
		codec__message_fini(&out);
		sample_fini(&s);
	}
}

/* What the core asserts on, or reads unchecked, holds of any that passes. */
static void sound(const struct raft_message *m)
{
	uint64_t term;

	if (m->type == RAFT_APPEND_ENTRIES) {
		const struct raft_append_entries *a = &m->append_entries;

		CHECK(a->term > 0);
		CHECK((a->prev_log_index == 0) == (a->prev_log_term == 0));
		term = a->prev_log_term;
		for (unsigned i = 0; i < a->n_entries; i++) {
			const struct raft_entry *e = &a->entries[i];
			struct raft_configuration conf;

			CHECK(e->term >= term && e->term > 0);
			CHECK(e->term <= a->term);
			CHECK(e->type >= RAFT_COMMAND &&
			      e->type <= RAFT_CHANGE);
			term = e->term;
			if (e->type != RAFT_CHANGE)
				continue;
			CHECK_EQ(codec__conf_decode(e->buf.base, e->buf.len,
						    &conf),
				 0);
			raft_configuration_close(&conf);
		}
	} else if (m->type == RAFT_INSTALL_SNAPSHOT) {
		CHECK(m->install_snapshot.last_index > 0);
		CHECK(m->install_snapshot.last_term > 0);
		CHECK(m->install_snapshot.conf.n > 0);
	} else if (m->type == RAFT_REQUEST_VOTE) {
		CHECK(m->request_vote.candidate_id > 0);
	} else {
		CHECK(m->type <= RAFT_TIMEOUT_NOW);
	}
}

/* On memory of exactly its size, so that a read past its end shows. */
static int try(const uint8_t *data, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	struct raft_message out;
	int rv;

	memcpy(copy, data, len);
	rv = codec__message_decode(copy, len, &out);
	CHECK(rv == 0 || rv == -EPROTO || rv == -EMSGSIZE);
	if (rv == 0) {
		sound(&out);
		codec__message_fini(&out);
	}
	free(copy);
	return rv;
}

TEST(cmmds_codec, every_truncation_and_bit)
{
	unsigned passed = 0;

	for (EACH_TYPE(type)) {
		struct sample s;

		sample_make(&s, type);
		for (size_t len = 0; len < s.frame.len; len++) {
			CHECK(try(s.frame.data, len) != 0);
			/* And with a length that says so. */
			if (len >= 4) {
				uint8_t head[4];

				memcpy(head, s.frame.data, 4);
				put_le32(s.frame.data, (uint32_t)len);
				CHECK(try(s.frame.data, len) != 0);
				memcpy(s.frame.data, head, 4);
			}
		}
		for (size_t bit = 0; bit < s.frame.len * 8; bit++) {
			s.frame.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
			passed += try(s.frame.data, s.frame.len) == 0;
			s.frame.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		sample_fini(&s);
	}
	/* The transport's MAC finds those; here they only must not hurt. */
	CHECK(passed > 0);
}

TEST(cmmds_codec, random_bytes)
{
	uint64_t random = 3;

	for (unsigned round = 0; round < 60000; round++) {
		struct sample s;
		unsigned n = 1 + (unsigned)(random_next(&random) % 6);

		sample_make(&s, 1 + (int)(random_next(&random) % 6));
		while (n-- > 0)
			s.frame.data[4 +
				     random_next(&random) % (s.frame.len - 4)] =
				(uint8_t)random_next(&random);
		try(s.frame.data, s.frame.len);
		sample_fini(&s);
	}
}

/* Rule by rule (R12): each alone is refused. */
TEST(cmmds_codec, unsound_appends)
{
	static const struct {
		uint64_t term, prev, prev_term, first, second;
		uint8_t type;
		int want;
	} cases[] = {
		{ 9, 20, 5, 5, 6, 1, 0 },
		{ 9, 0, 0, 1, 6, 1, 0 },
		{ 0, 20, 5, 5, 6, 1, -EPROTO }, /* no term */
		{ 9, 0, 5, 5, 6, 1, -EPROTO }, /* term without index */
		{ 9, 20, 0, 5, 6, 1, -EPROTO }, /* index without term */
		{ 9, 20, 10, 10, 10, 1, -EPROTO }, /* above its own term */
		{ 9, 20, 5, 4, 6, 1, -EPROTO }, /* below what it follows */
		{ 9, 20, 5, 6, 5, 1, -EPROTO }, /* falling */
		{ 9, 20, 5, 5, 10, 1, -EPROTO }, /* from the future */
		{ 9, 20, 5, 5, 6, 0, -EPROTO },
		{ 9, 20, 5, 5, 6, 4, -EPROTO },
		{ 9, 20, 5, 5, 6, RAFT_CHANGE, -EPROTO }, /* no configuration */
		{ 9, UINT64_MAX, 5, 5, 6, 1, -EPROTO },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct log_entry a = { .term = cases[i].first,
				       .type = 1,
				       .len = 3,
				       .data = (uint8_t *)"one" };
		struct log_entry b = { .term = cases[i].second,
				       .type = cases[i].type,
				       .len = 3,
				       .data = (uint8_t *)"two" };
		const struct log_entry *list[] = { &a, &b };
		struct raft_message m = { .type = RAFT_APPEND_ENTRIES };
		struct codec_buf frame = { 0 };

		m.append_entries.term = cases[i].term;
		m.append_entries.prev_log_index = cases[i].prev;
		m.append_entries.prev_log_term = cases[i].prev_term;
		m.append_entries.n_entries = 2;
		codec__message_encode(&m, list, NULL, &frame);
		CHECK_EQ(try(frame.data, frame.len), cases[i].want);
		free(frame.data);
	}
}

/* Of snapshots, the same; and nothing may follow what a message says it is. */
TEST(cmmds_codec, unsound_installs)
{
	static const struct {
		uint64_t term, index, last_term, conf_index;
		size_t len;
		int want;
	} cases[] = {
		{ 9, 40, 7, 40, 3, 0 },
		{ 9, 40, 9, 1, 3, 0 },
		{ 0, 40, 7, 3, 3, -EPROTO },
		{ 9, 0, 7, 3, 3, -EPROTO },
		{ 9, 40, 0, 3, 3, -EPROTO },
		{ 9, 40, 10, 3, 3, -EPROTO }, /* above its own term */
		{ 9, 40, 7, 0, 3, -EPROTO },
		{ 9, 40, 7, 41, 3, -EPROTO }, /* a later configuration */
		{ 9, 40, 7, 3, 0, -EPROTO },
	};
	struct sample s;

	sample_make(&s, RAFT_INSTALL_SNAPSHOT);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct raft_message m = { .type = RAFT_INSTALL_SNAPSHOT };
		struct log_snapshot snap = {
			.index = cases[i].index,
			.term = cases[i].last_term,
			.conf_index = cases[i].conf_index,
			.conf = s.conf.data,
			.conf_len = s.conf.len,
			.data = (uint8_t *)"abc",
			.len = cases[i].len,
		};
		struct codec_buf frame = { 0 };

		m.install_snapshot.term = cases[i].term;
		codec__message_encode(&m, NULL, &snap, &frame);
		CHECK_EQ(try(frame.data, frame.len), cases[i].want);
		free(frame.data);
	}
	sample_fini(&s);
}

TEST(cmmds_codec, bytes_too_many)
{
	size_t len = CMMDS_SNAPSHOT_MAX + CODEC_CONF_MAX + 4097u;
	uint8_t *large = calloc(1, len);

	for (EACH_TYPE(type)) {
		struct sample s;

		sample_make(&s, type);
		codec__put_u8(&s.frame, 0);
		put_le32(s.frame.data, (uint32_t)s.frame.len);
		CHECK_EQ(try(s.frame.data, s.frame.len), -EPROTO);
		sample_fini(&s);
	}
	put_le32(large, (uint32_t)len);
	large[4] = RAFT_INSTALL_SNAPSHOT;
	CHECK_EQ(try(large, len), -EMSGSIZE);
	free(large);
}

TEST(cmmds_codec, configurations)
{
	struct raft_configuration conf, out;
	struct codec_buf buf = { 0 };
	uint8_t *copy;

	conf_make(&conf, 64);
	codec__conf_encode(&conf, &buf);
	CHECK_EQ(codec__conf_decode(buf.data, buf.len, &out), 0);
	CHECK_EQ(out.n, 64);
	CHECK_EQ(codec__conf_voters(&out), 21);
	CHECK(codec__conf_find(&out, 163) != NULL);
	CHECK(codec__conf_find(&out, 164) == NULL);
	CHECK_EQ(out.servers[5].role, 2);
	CHECK_STR(out.servers[5].address, "address-5");
	raft_configuration_close(&out);
	/* The library's own bytes are ours. */
	{
		struct raft_configuration theirs;

		CHECK_EQ(codec__conf_copy(&conf, &theirs), 0);
		CHECK_EQ(theirs.n, 64);
		raft_configuration_close(&theirs);
	}
	for (size_t len = 0; len < buf.len; len++) {
		copy = malloc(len ? len : 1);
		memcpy(copy, buf.data, len);
		if (codec__conf_decode(copy, len, &out) == 0)
			raft_configuration_close(&out); /* padding was cut */
		else
			CHECK_EQ(out.n, 0);
		free(copy);
	}
	for (size_t bit = 0; bit < buf.len * 8; bit++) {
		buf.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (codec__conf_decode(buf.data, buf.len, &out) == 0)
			raft_configuration_close(&out);
		buf.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	/* One id twice. */
	memcpy(buf.data + 9 + 8 + 11, buf.data + 9, 8);
	CHECK_EQ(codec__conf_decode(buf.data, buf.len, &out), -EPROTO);
	raft_configuration_close(&conf);
	free(buf.data);
}

/* On the disk every record has a CRC: no flipped bit passes. */
TEST(cmmds_codec, records_no_bit_passes)
{
	struct store_format format = { .version = STORE_VERSION,
				       .store_id = 77 },
			    f;
	struct sample s;
	struct log_snapshot snap;
	struct log_entry entry;
	uint64_t term, vote;

	sample_make(&s, RAFT_INSTALL_SNAPSHOT);
	for (int kind = 0; kind < 4; kind++) {
		struct codec_buf buf = { 0 };
		size_t len;

		if (kind == 0)
			codec__format_encode(&format, &buf);
		else if (kind == 1)
			codec__term_encode(5, 77, &buf);
		else if (kind == 2)
			codec__entry_encode(21, &s.entries[2], &buf);
		else
			codec__snapshot_encode(&s.snap, &buf);
		len = buf.len;
		for (size_t i = 0; i <= len * 8 + len; i++) {
			size_t use = i > len * 8 ? i - len * 8 - 1 : len;
			uint8_t *copy = malloc(use ? use : 1);
			int rv;

			/* A flipped bit; then every truncation; last, whole. */
			memcpy(copy, buf.data, use);
			if (i < len * 8)
				copy[i / 8] ^= (uint8_t)(1 << i % 8);
			if (kind == 0)
				rv = codec__format_decode(copy, use, &f);
			else if (kind == 1)
				rv = codec__term_decode(copy, use, &term,
							&vote);
			else if (kind == 2)
				rv = codec__entry_decode(21, copy, use, &entry);
			else
				rv = codec__snapshot_decode(copy, use, &snap);
			CHECK_EQ(rv, i == len * 8 ? 0 : -EUCLEAN);
			if (rv == 0 && kind == 0)
				CHECK_EQ(f.store_id, 77);
			if (rv == 0 && kind == 1)
				CHECK(term == 5 && vote == 77);
			if (rv == 0 && kind == 2) {
				CHECK_EQ(entry.len, s.entries[2].len);
				free(entry.data);
			}
			if (rv == 0 && kind == 3) {
				CHECK_EQ(snap.index, 40);
				codec__snapshot_fini(&snap);
			}
			free(copy);
		}
		free(buf.data);
	}
	sample_fini(&s);
}

/* Whole, and yet not what a store of this program can hold. */
TEST(cmmds_codec, records_unsound)
{
	struct store_format format = { .version = STORE_VERSION,
				       .features = 1,
				       .store_id = 77 };
	struct codec_buf buf = { 0 };
	struct log_snapshot snap;
	struct log_entry entry = { .term = 5,
				   .type = RAFT_CHANGE,
				   .len = 3,
				   .data = (uint8_t *)"abc" };
	struct sample s;

	codec__format_encode(&format, &buf);
	CHECK_EQ(codec__format_decode(buf.data, buf.len, &format),
		 -EMEDIUMTYPE);
	format.features = 0;
	format.store_id = 0; /* the core's "nobody" */
	buf.len = 0;
	codec__format_encode(&format, &buf);
	CHECK_EQ(codec__format_decode(buf.data, buf.len, &format), -EUCLEAN);
	buf.len = 0;
	codec__entry_encode(21, &entry, &buf);
	CHECK_EQ(codec__entry_decode(21, buf.data, buf.len, &entry), -EUCLEAN);
	CHECK_EQ(codec__entry_decode(22, buf.data, buf.len, &entry), -EUCLEAN);
	sample_make(&s, RAFT_INSTALL_SNAPSHOT);
	s.snap.conf_index = s.snap.index + 1;
	buf.len = 0;
	codec__snapshot_encode(&s.snap, &buf);
	CHECK_EQ(codec__snapshot_decode(buf.data, buf.len, &snap), -EUCLEAN);
	sample_fini(&s);
	free(buf.data);
}
