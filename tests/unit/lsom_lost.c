/*
 * More than one block of a log is lost, of a history that is known, a whole
 * segment, or what a disk had lately: what cannot be known is refused, until it
 * is written again.
 */
#include "tests/unit/lsom_history.h"

static void scanned(struct lsom_scan *req, int status)
{
	struct call *c = req->data;

	c->status = status;
	c->done = true;
}

static unsigned scan_count(struct history *h, struct lsom_comp *comp)
{
	static struct lsom_version items[BLOCKS];
	struct call c = { .f = &h->f };
	struct lsom_scan req = { .data = &c,
				 .len = BLOCKS * LSOM_BLOCK,
				 .items = items,
				 .items_max = BLOCKS };
	unsigned i, n = 0;

	CHECK_EQ(finish(&c, lsom_scan(comp, &req, scanned)), 0);
	CHECK_EQ(req.next, req.len);
	for (i = 0; i < req.items_count; i++)
		n += !items[i].hole;
	return n;
}

/* Write and unmap some of it under the next epoch, as an owner after a restart. */
static void heal(struct history *h, struct lsom_comp *comp, unsigned epoch)
{
	struct lsom_comp_meta m = *lsom_comp_meta(comp);
	unsigned first = epoch * 40, i;

	m.promised_oepoch = epoch;
	CHECK_EQ(update(&h->f, comp, LSOM_SEAL, m), 0);
	for (i = first; i < first + 40; i++) {
		history_put(h, comp, i, 1, epoch, i >= first + 20);
		CHECK_EQ(get(&h->f, comp, i, h->seeds[i]), h->seeds[i] != 0);
	}
	/* Also where there is no page of the index yet. */
	first = 760 + epoch * 10;
	history_put(h, comp, first, 10, epoch, true);
	CHECK_EQ(get(&h->f, comp, first, 0), 0);
}

/* Write what was written before, over and over, until the cleaner has worked. */
static void history_overwrite(struct history *h, struct lsom_comp *comp,
			      unsigned epoch)
{
	struct lsom__entry e;
	unsigned i;

	for (i = 0; i < 1000; i++)
		history_put(h, comp, 80 + i % 20, 1, epoch, false);
	entry_get(comp, 80 + (i - 1) % 20, &e);
	h->last_header = e.place - 1;
}

/*
 * A batch is on its way for so long that a checkpoint comes, which covers all before
 * it; the one behind it, in the next segment, is on the disk when the power goes.
 * What the index covers is not looked for, and what it does not is a torn tail.
 */
TEST(lost, nothing_that_was_on_its_way)
{
	struct fixture *f = fixture_of(16, 8u << 20, LSOM__SEGMENT_TINY);
	struct lsom__head *head = &f->disk->heads[LSOM__HEAD_GUEST];
	struct call c[2] = { { .f = f }, { .f = f } };
	uint32_t first, second;
	struct lsom_comp *comp;
	struct env_io *io;
	uint64_t at;

	CHECK_EQ(create(f, 1, 4 * FULL), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, FULL, LSN(1, 1), 1), 0);
	first = head->segment;
	CHECK_EQ(write_start(&c[0], comp, LSOM_RCOPY, 0, FULL, LSN(1, 2), 2),
		 0);
	io = head_hold(f, LSOM__HEAD_GUEST);
	second = head->segment;
	CHECK(second != first);
	CHECK_EQ(write_start(&c[1], comp, LSOM_RCOPY, FULL, FULL, LSN(1, 3), 3),
		 0);
	while (head->segment == second ||
	       !TAILQ_LAST(&head->inflight, lsom__batches)->done ||
	       f->disk->segments[first].state != LSOM__SEG_CLOSED)
		CHECK(sim_env_turn(&f->sim));
	checkpoint_make(f);
	CHECK(!c[0].done && !c[1].done);
	at = lsom__place(f->disk, second, 0) * LSOM_BLOCK;
	f->sim.ios[f->sim.ios_count++] = io;
	lsom_comp_put(comp);
	sim_env_cut(&f->sim);
	memset(f->sim.disk.durable + at, 0, LSOM__SEGMENT_TINY);
	disk_close(f);
	sim_env_restore(&f->sim);
	CHECK_EQ(disk_open(f, false), 0);
	CHECK_EQ(f->disk->damage[0], '\0');
	comp = comp_of(f, 1);
	CHECK_EQ(lsom_comp_meta(comp)->damaged, 0);
	CHECK_EQ(get(f, comp, 0, 1), 1);
	CHECK_EQ(get(f, comp, FULL, 3), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Behind what a batch's header says there is nothing of an older one. */
TEST(lost, headers_end_in_zeros)
{
	struct fixture *f = fixture_open(7);
	const uint8_t *disk = f->sim.disk.durable, *end;
	const struct lsom__batch_header *b;
	const struct lsom__echo *echo;
	struct lsom_comp *comp;
	unsigned headers = 0;
	size_t used;

	CHECK_EQ(create(f, 1, 4096), 0);
	comp = comp_of(f, 1);
	/* Long ones, then short ones from the same memory. */
	for (unsigned i = 0; i < 4 * LSOM__BATCHES; i++)
		CHECK_EQ(put(f, comp, i, i < LSOM__BATCHES ? 200 : 1,
			     LSN(1, i + 1), i + 1),
			 0);
	for (size_t at = 0; at < (64u << 20); at += LSOM_BLOCK) {
		b = (const void *)(disk + at);
		if (b->magic != LSOM__BATCH_MAGIC)
			continue;
		used = sizeof(*b) + b->records_bytes;
		echo = (const void *)(disk + at + used);
		used += sizeof(*echo) + echo->frame.records_bytes;
		end = disk + at + (size_t)b->header_blocks * LSOM_BLOCK;
		for (const uint8_t *p = disk + at + used; p < end; p++)
			CHECK_EQ(*p, 0);
		headers++;
	}
	CHECK(headers > 4 * LSOM__BATCHES);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * A header and its echo.  What was in the batch is not known, so nothing older
 * than the loss is shown; what is written again is there, whatever follows: a
 * restart, a checkpoint, cleaning, an index made from the log alone.
 */
TEST(lost, header_and_echo)
{
	unsigned way, epoch, lost, healed, holes;
	struct lsom_comp *comp;
	struct history *h;

	for (way = 0; way < 2; way++) {
		h = history_make(5, 14, true);
		header_rot(h, 3);
		header_rot(h, 2);
		healed = holes = 0;
		for (epoch = 2; epoch < 10; epoch++) {
			comp = reopen(h, epoch % 4 == 2 * way);
			CHECK_EQ(lsom_comp_meta(comp)->damaged, 1);
			lost = history_check(h, comp, 0);
			CHECK_EQ(lost, BLOCKS - healed);
			CHECK_EQ(scan_count(h, comp), BLOCKS - holes);
			heal(h, comp, epoch);
			healed += 50;
			holes += 30;
			if (epoch % 3 == 0)
				history_overwrite(h, comp, epoch);
			lsom_comp_put(comp);
			if (epoch % 2 == 0)
				disk_close(&h->f);
			else
				power_off(&h->f);
		}
		history_free(h);
	}
}

/* A segment of guests that was closed: its summary and two headers rot. */
static void summary_rot(struct history *h)
{
	const uint64_t all = SEGMENT / LSOM_BLOCK;
	uint64_t place = LSOM__DATA_START / LSOM_BLOCK, headers[16];
	const struct lsom__batch_header *b;
	unsigned n = 0;

	for (place += all; n < 4; place++) {
		if (place % all == 0)
			n = 0;
		CHECK(place < BYTES / LSOM_BLOCK);
		b = (const void *)(h->image + place * LSOM_BLOCK);
		if (b->magic == LSOM__BATCH_MAGIC &&
		    b->head == LSOM__HEAD_GUEST)
			headers[n++] = place;
	}
	rot(h, ROUND_UP(place, all) - 1, 100);
	rot(h, headers[1], 100);
	rot(h, headers[2], 100);
}

/*
 * A batch of a segment whose summary is lost, too, is missed when the index is made
 * from the log.  It is one, is told once, and what is written since stays there when
 * that is done again.
 */
TEST(lost, missed_once)
{
	struct history *h = history_make(11, 60, false);
	unsigned epoch, healed = 0, n, whole = 0;
	struct lsom_disk_info info;
	struct lsom_comp *comp;

	/* Where it cannot be noted the disk is opened all the same. */
	for (n = 1; n < 20; n++) {
		history_restore(h);
		summary_rot(h);
		h->f.sim.fail_write = n;
		if (disk_open(&h->f, true) == 0) {
			whole += h->f.sim.fail_write == 0;
			power_off(&h->f);
		}
		h->f.sim.fail_write = 0;
	}
	CHECK_EQ(whole, 1);
	history_restore(h);
	summary_rot(h);
	CHECK_EQ(open_saying(&h->f, true, " damaged"), 2);
	lsom_disk_info(h->f.disk, &info);
	CHECK(strncmp(info.damage, "1 batch ", 8) == 0);
	disk_close(&h->f);
	for (epoch = 2; epoch < 5; epoch++) {
		comp = reopen(h, true);
		lsom_disk_info(h->f.disk, &info);
		CHECK_STR(info.damage, "");
		CHECK_EQ(lsom_comp_meta(comp)->damaged, 1);
		CHECK_EQ(history_check(h, comp, 0), BLOCKS - healed);
		heal(h, comp, epoch);
		healed += 50;
		lsom_comp_put(comp);
		disk_close(&h->f);
	}
	history_free(h);
}

/*
 * The last header rots, and the checkpoint has what was in it.  Nothing is lost,
 * until the index is, too: then that batch is missed.
 */
TEST(lost, last_header_under_a_checkpoint)
{
	struct history *h = history_make(6, 20, true);
	struct lsom_comp *comp;
	unsigned round;

	history_restore(h);
	comp = reopen(h, false);
	history_overwrite(h, comp, 2);
	checkpoint_make(&h->f);
	lsom_comp_put(comp);
	power_off(&h->f);
	memcpy(h->image, h->f.sim.disk.durable, BYTES);
	h->cut = false;
	rot(h, h->last_header, 100);
	for (round = 0; round < 3; round++) {
		comp = reopen(h, round == 2);
		CHECK_EQ(history_check(h, comp, 0) > 0, round == 2);
		lsom_comp_put(comp);
		if (round == 0)
			disk_close(&h->f);
		else
			power_off(&h->f);
	}
	history_free(h);
}

/* The disk is @image again, its index as it is. */
static void set_back(struct history *h, const uint8_t *image)
{
	memcpy(h->f.sim.disk.durable, image, BYTES);
	memcpy(h->f.sim.disk.now, image, BYTES);
}

static const char *damage_of(struct fixture *f)
{
	static struct lsom_disk_info info;

	lsom_disk_info(f->disk, &info);
	return info.damage;
}

/*
 * A copy of the disk from before its last opening, or the disk set back to that:
 * it is refused, with all that it has, until somebody says to take it as it is.
 */
TEST(lost, older_copy_is_refused)
{
	uint64_t seeds[BLOCKS], seeds_newer[BLOCKS];
	struct history *h = history_make(7, 20, true);
	uint8_t *newer = malloc(BYTES);
	struct lsom_comp *comp;
	unsigned i;

	history_restore(h);
	memcpy(seeds, h->seeds, sizeof(seeds));
	comp = reopen(h, false);
	CHECK_STR(damage_of(&h->f), "");
	history_overwrite(h, comp, 2);
	checkpoint_make(&h->f);
	lsom_comp_put(comp);
	power_off(&h->f);
	memcpy(newer, h->f.sim.disk.durable, BYTES);
	memcpy(seeds_newer, h->seeds, sizeof(h->seeds));
	set_back(h, h->image);
	CHECK_EQ(disk_open(&h->f, false), -ESTALE);
	CHECK_EQ(memcmp(h->image, h->f.sim.disk.now, BYTES), 0);
	memcpy(h->seeds, seeds, sizeof(seeds));
	comp = reopen(h, true);
	CHECK_EQ(history_check(h, comp, 0), 0);
	history_overwrite(h, comp, 2); /* as many batches as the disk itself */
	for (i = 0; i < 10; i++) { /* and more checkpoints */
		history_put(h, comp, 80, 1, 2, false);
		checkpoint_make(&h->f);
	}
	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	power_off(&h->f);
	/* Now the disk itself, and the copy's index. */
	set_back(h, newer);
	CHECK_EQ(disk_open(&h->f, false), -EUCLEAN);
	memcpy(h->seeds, seeds_newer, sizeof(seeds_newer));
	comp = reopen(h, true);
	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	disk_close(&h->f);
	comp = reopen(h, false);
	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	disk_close(&h->f);
	free(newer);
	history_free(h);
}

/* One superblock that rots is not an older copy, though nothing was written. */
TEST(lost, newest_superblock_lost)
{
	struct history *h = history_make(8, 20, true);
	struct lsom_comp *comp;
	unsigned slot, round, byte;

	for (slot = 0; slot < 4; slot++) {
		byte = slot / 2 * 100; /* of the magic, or behind it */
		history_restore(h);
		for (round = 0; round < 2; round++) {
			comp = reopen(h, false);
			checkpoint_make(&h->f);
			CHECK_EQ(history_check(h, comp, 0), 0);
			lsom_comp_put(comp);
			power_off(&h->f);
			rot(h, slot % 2 * LSOM__SUPER_GAP / LSOM_BLOCK, byte);
		}
		comp = reopen(h, false);
		CHECK_EQ(history_check(h, comp, 0), 0);
		lsom_comp_put(comp);
		disk_close(&h->f);
	}
	history_free(h);
}

/*
 * Nor if it is the only one of its opening, which the index has seen: the power went
 * before the first checkpoint of that was told on the disk.
 */
TEST(lost, only_superblock_of_an_opening_lost)
{
	struct history *h = history_make(8, 20, true);
	struct fixture *f = &h->f;
	struct lsom_comp *comp;
	uint64_t slot;

	history_restore(h);
	lsom_comp_put(reopen(h, false));
	checkpoint_make(f);
	power_off(f);
	CHECK_EQ(disk_open(f, false), 0);
	slot = f->disk->super.sequence % 2;
	f->sim.fail_write = 1; /* of the next superblock */
	while (f->disk->state != LSOM_DISK_FAILED)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(f->disk->super.sequence % 2, 1 - slot);
	power_off(f);
	rot(h, slot * LSOM__SUPER_GAP / LSOM_BLOCK, 100);
	comp = reopen(h, false);
	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	disk_close(f);
	history_free(h);
}

/*
 * Set back to an earlier hour of the same opening: nothing tells for certain, but
 * what was overwritten since is an error to read, never what it was, and the
 * disk says what happened.
 */
TEST(lost, set_back_within_an_opening)
{
	struct history *h = history_make(9, 20, true);
	uint8_t *image = malloc(BYTES);
	const struct lsom__segment *seg;
	struct lsom_comp *comp;
	unsigned i;

	history_restore(h);
	comp = reopen(h, false);
	history_overwrite(h, comp, 2);
	checkpoint_make(&h->f);
	memcpy(image, h->f.sim.disk.durable, BYTES);
	history_overwrite(h, comp, 2);
	lsom_comp_put(comp);
	disk_close(&h->f);
	set_back(h, image);
	comp = reopen(h, false);
	CHECK(strstr(damage_of(&h->f), "older copy") != NULL);
	CHECK(history_check(h, comp, 0) > 0);
	lsom_comp_put(comp);
	power_off(&h->f);
	comp = reopen(h, false); /* it stays so */
	CHECK(history_check(h, comp, 0) > 0);
	for (i = 0; i < BLOCKS; i++)
		if (get(&h->f, comp, i, h->seeds[i]) == -EBADMSG)
			history_put(h, comp, i, 1, 2, false);
	CHECK_EQ(history_check(h, comp, 0), 0);
	for (i = 0; i < 4; i++)
		checkpoint_make(&h->f);
	for (i = 0; i < SEGMENTS; i++) {
		seg = &h->f.disk->segments[i];
		CHECK(seg->live > 0 || !seg->set_back ||
		      seg->state == LSOM__SEG_FREE);
	}
	CHECK(lsom__segments_oldest(h->f.disk, LSOM__NONE) > 0);
	history_overwrite(h, comp, 2);
	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	disk_close(&h->f);
	comp = reopen(h, false); /* until all of it was written again */
	CHECK_STR(damage_of(&h->f), "");
	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	disk_close(&h->f);
	free(image);
	history_free(h);
}

/*
 * Set back by less than a segment: all headers are as they were, and only that
 * the segment was not closed yet tells it.
 */
TEST(lost, set_back_within_a_segment)
{
	struct history *h = history_make(10, 20, true);
	uint8_t *image = malloc(BYTES);
	struct lsom_comp *comp;

	history_restore(h);
	comp = reopen(h, false);
	history_put(h, comp, 0, 2, 2, false);
	checkpoint_make(&h->f);
	memcpy(image, h->f.sim.disk.durable, BYTES);
	history_put(h, comp, 1, 2, 2, false);
	lsom_comp_put(comp);
	disk_close(&h->f);
	set_back(h, image);
	comp = reopen(h, false);
	CHECK(strstr(damage_of(&h->f), "batch of the log was lost") != NULL);
	CHECK_EQ(get(&h->f, comp, 0, h->seeds[0]), 1);
	CHECK_EQ(get(&h->f, comp, 1, h->seeds[1]), -EBADMSG);
	CHECK_EQ(get(&h->f, comp, 2, h->seeds[2]), -EBADMSG);
	lsom_comp_put(comp);
	disk_close(&h->f);
	free(image);
	history_free(h);
}

/* Nothing is left of the segment that has @place. */
static void segment_wipe(struct fixture *f, uint64_t place)
{
	uint64_t at = ROUND_DOWN(place * LSOM_BLOCK - LSOM__DATA_START,
				 (uint64_t)SEGMENT) +
		      LSOM__DATA_START;

	memset(f->sim.disk.now + at, 0, SEGMENT);
	memset(f->sim.disk.durable + at, 0, SEGMENT);
}

/*
 * A whole segment of the log is gone, which the index does not know yet, with the
 * only batch it had: what follows it tells that it was there, and nothing reads
 * as it was before.  At the next opening, too, until it is written again.
 */
TEST(lost, a_segment_is_lost_since_the_checkpoint)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct lsom_decided d = { .stable_lsn = LSN(1, 4) };
	struct lsom_comp *comp;
	struct lsom__entry e;
	unsigned way;

	tiny_open(f, 15);
	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, FULL, LSN(1, 1), 1), 0);
	CHECK_EQ(put(f, comp, FULL, FULL, LSN(1, 2), 2), 0);
	checkpoint_make(f);
	CHECK_EQ(put(f, comp, 0, FULL, LSN(1, 3), 3), 0);
	entry_get(comp, 0, &e);
	CHECK_EQ(put(f, comp, FULL, FULL, LSN(1, 4), 4), 0);
	lsom_comp_put(comp);
	power_off(f);
	segment_wipe(f, e.place);
	for (way = 0; way < 2; way++) {
		CHECK_EQ(disk_open(f, false), 0);
		comp = comp_of(f, 1);
		lsom_decided(comp, &d);
		CHECK(lsom_comp_meta(comp)->damaged != 0);
		CHECK_EQ(get(f, comp, 0, 3), -EBADMSG);
		CHECK_EQ(get(f, comp, FULL, 4), -EBADMSG);
		CHECK_EQ(put(f, comp, 1, 1, LSN(2, way + 1), 5 + way), 0);
		CHECK_EQ(get(f, comp, 1, 5 + way), 1);
		lsom_comp_put(comp);
		power_off(f);
	}
	tiny_close(f);
}

/* The one that was open at the checkpoint: what came to it since nobody knows. */
TEST(lost, the_open_segment_is_lost)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct lsom_decided d = { .stable_lsn = LSN(1, 3) };
	struct lsom_comp *comp;
	struct lsom__entry e;

	tiny_open(f, 16);
	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, FULL, LSN(1, 1), 1), 0);
	CHECK_EQ(put(f, comp, FULL, 16, LSN(1, 2), 2), 0);
	entry_get(comp, FULL, &e);
	checkpoint_make(f);
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 3), 3), 0);
	lsom_comp_put(comp);
	power_off(f);
	segment_wipe(f, e.place);
	CHECK_EQ(disk_open(f, false), 0);
	comp = comp_of(f, 1);
	lsom_decided(comp, &d);
	CHECK_EQ(get(f, comp, 0, 3), -EBADMSG);
	CHECK_EQ(get(f, comp, FULL, 2), -EBADMSG);
	lsom_comp_put(comp);
	power_off(f);
	tiny_close(f);
}

/*
 * A batch behind the torn tail is dropped, and stays dropped where the header
 * that says so rots: it is not what its segment begins with any more.
 */
TEST(lost, a_dropped_batch_under_a_header)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct call torn = { .f = f }, whole = { .f = f };
	struct lsom_decided d = { .stable_lsn = LSN(1, 1) };
	struct lsom_comp *comp;
	struct lsom__entry e;
	uint8_t *header;
	unsigned way;
	uint64_t at;

	tiny_open(f, 17);
	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, FULL, LSN(1, 1), 1), 0);
	/* On their way together, to a segment each. */
	CHECK_EQ(write_start(&torn, comp, LSOM_RCOPY, FULL, FULL, LSN(1, 2), 2),
		 0);
	CHECK_EQ(write_start(&whole, comp, LSOM_RCOPY, 0, FULL, LSN(1, 3), 3),
		 0);
	CHECK(sim_env_run(&f->sim, &torn.done));
	CHECK(sim_env_run(&f->sim, &whole.done));
	entry_get(comp, 0, &e);
	at = lsom__place(f->disk, lsom__segment_of(f->disk, e.place), 0) *
	     LSOM_BLOCK;
	header = f->sim.disk.durable + at;
	entry_get(comp, FULL, &e);
	lsom_comp_put(comp);
	power_off(f);
	segment_wipe(f, e.place);
	for (way = 0; way < 2; way++) {
		CHECK_EQ(disk_open(f, way == 1), 0);
		comp = comp_of(f, 1);
		lsom_decided(comp, &d);
		CHECK_EQ(lsom_comp_meta(comp)->damaged, 0);
		CHECK_EQ(get(f, comp, 0, 1), 1);
		CHECK_EQ(get(f, comp, FULL, 2), 0);
		lsom_comp_put(comp);
		power_off(f);
		header[100] ^= 4;
		f->sim.disk.now[at + 100] ^= 4;
	}
	tiny_close(f);
}

/* Other data than @data, of the same CRC32C: the polynomial makes no difference. */
static void collide(uint8_t *data)
{
	const uint32_t crc = crc32c(data, LSOM_BLOCK);
	uint64_t word;

	memcpy(&word, data + 800, sizeof(word));
	word ^= 0x82f63b78ull << 1 | 1;
	memcpy(data + 800, &word, sizeof(word));
	CHECK_EQ(crc32c(data, LSOM_BLOCK), crc);
}

/*
 * What lies in a segment that was set back is not what was written, also where
 * its CRC says so; a scan tells what the index has.  What is written again is as
 * good as ever.
 */
TEST(lost, set_back_is_not_judged_by_its_crc)
{
	struct history *h = history_make(9, 20, true);
	uint8_t *image = malloc(BYTES), *data;
	struct lsom_disk_info was, info;
	struct lsom__entry e;
	struct lsom_comp *comp;
	unsigned i, mapped, bad = 0;

	history_restore(h);
	comp = reopen(h, false);
	history_overwrite(h, comp, 2);
	checkpoint_make(&h->f);
	memcpy(image, h->f.sim.disk.durable, BYTES);
	history_overwrite(h, comp, 2);
	mapped = scan_count(h, comp);
	lsom_disk_info(h->f.disk, &was);
	lsom_comp_put(comp);
	disk_close(&h->f);
	set_back(h, image);
	comp = reopen(h, false);
	CHECK(h->f.disk->segments_set_back > 0);
	/* Its room is nobody's while the index points to it. */
	lsom_disk_info(h->f.disk, &info);
	CHECK_EQ(info.used_bytes, was.used_bytes);
	CHECK(info.segments_free <= was.segments_free);
	CHECK_EQ(scan_count(h, comp), mapped);
	for (i = 0; i < BLOCKS; i++) {
		entry_get(comp, i, &e);
		if (e.kind != LSOM__E_RAW ||
		    !lsom__segment_set_back(h->f.disk, e.place))
			continue;
		data = h->f.sim.disk.now + e.place * LSOM_BLOCK;
		fill(data, i, h->seeds[i]);
		collide(data);
		CHECK_EQ(get(&h->f, comp, i, h->seeds[i]), -EBADMSG);
		bad++;
	}
	CHECK(bad > 0);
	for (i = 0; i < BLOCKS; i++)
		if (get(&h->f, comp, i, h->seeds[i]) == -EBADMSG)
			history_put(h, comp, i, 1, 2, false);
	CHECK_EQ(history_check(h, comp, 0), 0);
	CHECK_EQ(scan_count(h, comp), mapped);
	lsom_comp_put(comp);
	disk_close(&h->f);
	free(image);
	history_free(h);
}

/* An unmapped block is not lost: that it is unmapped is kept for as long. */
TEST(lost, a_hole_stays_while_the_log_is_cleaned)
{
	enum { N = 4000, RUN = 4 };
	struct fixture *f = fixture_of(11, 8u << 20, SEGMENT);
	struct lsom_comp *comp;
	uint64_t n = 1, i;

	CHECK_EQ(create(f, 1, 1024), 0);
	comp = comp_of(f, 1);
	comp->meta.damaged = 1;
	CHECK_EQ(update(f, comp, LSOM_SEAL, *lsom_comp_meta(comp)), 0);
	CHECK_EQ(get(f, comp, 1000, 0), -EBADMSG);
	CHECK_EQ(put(f, comp, 1000, 1, LSN(2, n++), 0), 0);
	CHECK_EQ(get(f, comp, 1000, 0), 0);
	for (i = 0; i < N; i++)
		CHECK_EQ(put(f, comp, sim_env_random(&f->sim, 225) * RUN, RUN,
			     LSN(2, n++), 5),
			 0);
	CHECK(f->disk->sequence_next > 4 * f->disk->super.segments);
	CHECK_EQ(get(f, comp, 1000, 0), 0);
	CHECK_EQ(get(f, comp, 1001, 0), -EBADMSG);
	lsom_comp_put(comp);
	disk_close(f);
	CHECK_EQ(disk_open(f, true), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(lsom_comp_meta(comp)->damaged, 1);
	CHECK_EQ(get(f, comp, 1000, 0), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * Two segments of guests when the power goes: the first one has no summary, and of
 * the next one, which lies in front of it, the first batch is torn, but its header.
 * Returns where the header of the last batch is that was acknowledged.
 */
static uint64_t torn_behind(struct fixture *f, struct lsom_comp *comp,
			    uint64_t *lsn)
{
	struct lsom__head *head = &f->disk->heads[LSOM__HEAD_GUEST];
	struct call c = { .f = f };
	struct env_io *summary, *batch;
	struct lsom__entry e;
	uint32_t first;

	for (;;) {
		CHECK(*lsn < 200);
		first = head->segment;
		entry_get(comp, 0, &e);
		CHECK_EQ(write_start(&c, comp, LSOM_RCOPY, 0, FULL,
				     LSN(1, *lsn + 1), *lsn + 1),
			 0);
		summary = summary_hold(f, first);
		batch = head_hold(f, LSOM__HEAD_GUEST);
		if (head->segment < first)
			break;
		f->sim.ios[f->sim.ios_count++] = summary;
		f->sim.ios[f->sim.ios_count++] = batch;
		CHECK_EQ(finish(&c, 0), 0);
		++*lsn;
	}
	held_tear(f, summary, 0);
	held_tear(f, batch, 2 * LSOM_BLOCK);
	lsom_comp_put(comp);
	power_off(f);
	return e.place - 1;
}

/*
 * The header of a batch rots whose only other copy is in a segment that recovery
 * erases.  It is there all the same, wherever that ends and is begun again.
 */
TEST(lost, recovery_closes_before_it_erases)
{
	struct fixture *f = fixture_of(18, 8u << 20, LSOM__SEGMENT_TINY);
	uint64_t lsn = 1, place, n;
	uint8_t *image = malloc(f->sim.disk.bytes);
	struct lsom_comp *comp;
	struct kv *store;
	bool ended = false;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 0, FULL, LSN(1, 1), 1), 0);
	place = torn_behind(f, comp, &lsn);
	f->sim.disk.durable[place * LSOM_BLOCK + 100] ^= 4;
	memcpy(image, f->sim.disk.durable, f->sim.disk.bytes);
	store = memkv_clone((struct memkv *)f->sim.store.flushed,
			    f->sim.store.merge);
	for (n = 1; !ended; n++) {
		memcpy(f->sim.disk.durable, image, f->sim.disk.bytes);
		memcpy(f->sim.disk.now, image, f->sim.disk.bytes);
		wb_store_load(&f->sim.store, (struct memkv *)store);
		f->sim.fail_write = n;
		ended = disk_open(f, false) == 0;
		f->sim.fail_write = 0;
		if (!ended)
			CHECK_EQ(disk_open(f, false), 0);
		comp = comp_of(f, 1);
		CHECK_EQ(get(f, comp, 0, lsn), 1);
		lsom_comp_put(comp);
		power_off(f);
	}
	CHECK(n > 3);
	kv_close(store);
	free(image);
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}
