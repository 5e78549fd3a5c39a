/*
 * scsi_sanitize_run: the work of a SANITIZE.  It belongs to the object: aborts,
 * resets, logouts and restarts do not stop it, and all units that show the
 * object, of whatever target, are closed by it.  There is one run at most: a
 * second one would erase what was written once the first had ended.  If the unit
 * goes whose handle it uses, another unit of the object begins it anew.
 *
 * The happy path: a mark that says what to do is stored with the object; the
 * unit is erased or overwritten step by step; the mark is taken away; whoever
 * waits is answered.  Until the mark is gone the unit stays closed, as a mark
 * left behind would erase at the next start what was written since.  A unit
 * that finds a mark when it opens begins anew, on whatever node that is; who finds
 * the mark gone stops.  A failure stays in the mark
 * too, until another SANITIZE, or EXIT FAILURE MODE, takes its place; so does one
 * that may have ended, for all that an older directory knows, with data written
 * since.
 */
#define LOG_ROOM LOG_ISCSI
#include "base/log.h"
#include "iscsi/scsi_int.h"

#define RETRY_NS (10 * MSEC)
#define STUCK_RETRY_NS SEC
#define STUCK_NS_MAX (300 * SEC)
#define MARK_RETRY_NS (100 * MSEC)
/* Whoever asked hears of it after this, stored or not. */
#define MARK_NS_MAX (20 * SEC)
/*
 * An overwrite is spread over at least this long: it comes beside the I/O of
 * other units, and hosts get to see that and how far it is.
 */
#define OVERWRITE_NS_MIN (8 * SEC)

/* The mark: version, flags, passes, pattern's length (2), pattern. */
#define MARK_VERSION 1u
#define MARK_HEAD 5u
enum { MARK_OVERWRITE = 1, MARK_INVERT = 2, MARK_AUSE = 4, MARK_FAILED = 8 };
_Static_assert(MARK_HEAD + PAGE_BYTES <= DOM_SANITIZE_MAX, "a mark must fit");

static void mark(struct scsi_sanitize *s);
static void step(struct scsi_sanitize *s);

struct scsi_sanitize *scsi__sanitize_of(const struct scsi_lun *lun)
{
	struct scsi_sanitize *s;

	TAILQ_FOREACH (s, &lun->target->common->sanitizes, link)
		if (scsi__same_object(s->lun, lun))
			return s;
	return NULL;
}

bool scsi__sanitize_running(const struct scsi_lun *lun, uint16_t *progress)
{
	const struct scsi_sanitize *s = scsi__sanitize_of(lun);
	uint64_t share;

	if (s == NULL || s->stage >= SANITIZE_FAILED)
		return false;
	/* In 65536ths of all passes; sizes are far below 2^48. */
	share = ((s->offset >> 9) << 16) / MAX(s->size >> 9, 1u);
	*progress =
		(uint16_t)MIN((s->pass * 65536 + share) / s->passes, 65535u);
	return true;
}

bool scsi__sanitize_failed(const struct scsi_lun *lun)
{
	const struct scsi_sanitize *s = scsi__sanitize_of(lun);

	return s != NULL && s->stage >= SANITIZE_FAILED;
}

/* The caller has its unit's reference now, and its memory. */
static void end_run(struct scsi_sanitize *s)
{
	TAILQ_REMOVE(&s->lun->target->common->sanitizes, s, link);
	if (s->page != NULL)
		page_put(s->lun->target->env->pages, s->page);
	s->page = NULL;
}

/* Its unit's reference is the last thing that it lets go of. */
static void drop(struct scsi_sanitize *s)
{
	struct scsi_lun *lun = s->lun;

	end_run(s);
	free(s);
	scsi__lun_put(lun);
}

void scsi__sanitize_look(const struct scsi_lun *lun)
{
	struct scsi_sanitize *s = scsi__sanitize_of(lun);
	size_t len;

	if (s != NULL && s->stage == SANITIZE_FAILED &&
	    dom_sanitize_state(s->lun->object, &len) == NULL)
		drop(s);
}

/* Answer who waits; @sense 0: as @status says. */
static void answer(struct scsi_sanitize *s, int status, unsigned sense)
{
	struct scsi_cmd *cmd = s->cmd;

	if (cmd == NULL)
		return;
	s->cmd = NULL;
	cmd->cancel = NULL;
	if (sense != 0)
		scsi__check(cmd, sense);
	else if (status < 0)
		scsi__status(cmd, status);
	scsi__done(cmd);
}

/* Another unit of @lun's object that can go on. */
static struct scsi_lun *heir_of(const struct scsi_lun *lun)
{
	struct scsi_lun *other;

	SCSI_UNITS_FOREACH (other, lun)
		if (other != lun && !other->removed)
			return other;
	return NULL;
}

static void resume(struct scsi_lun *lun, struct scsi_sanitize *s);

/* It is over for this unit: answer and let go. */
static void leave(struct scsi_sanitize *s, int status)
{
	struct scsi_lun *lun = s->lun;
	struct scsi_lun *heir = s->stop ? heir_of(lun) : NULL;
	struct scsi_target *target = lun->target;
	struct scsi_cmd *cmd = s->cmd;

	/* The answer may bring the next command in: be gone before it. */
	target->busy++;
	end_run(s);
	if (heir != NULL)
		resume(heir, s);
	else
		free(s);
	scsi__lun_put(lun);
	if (cmd != NULL) {
		cmd->cancel = NULL;
		if (status < 0)
			scsi__status(cmd, status);
		scsi__done(cmd);
	}
	target->busy--;
	scsi__target_check(target);
}

/* ---- the mark ---- */

static size_t mark_encode(const struct scsi_sanitize *s, uint8_t *b)
{
	if (s->stage == SANITIZE_END || s->stage == SANITIZE_EXIT)
		return 0; /* away with it */
	b[0] = MARK_VERSION;
	b[1] = (uint8_t)((s->overwrite ? MARK_OVERWRITE : 0) |
			 (s->invert ? MARK_INVERT : 0) |
			 (s->ause ? MARK_AUSE : 0) |
			 (s->stage == SANITIZE_FAILING ? MARK_FAILED : 0));
	b[2] = (uint8_t)s->passes;
	put_be16(b + 3, (uint16_t)s->pattern_len);
	memcpy(b + MARK_HEAD, s->pattern, s->pattern_len);
	return MARK_HEAD + s->pattern_len;
}

/* From the directory: not ours to trust.  0 or -EUCLEAN. */
static int mark_decode(struct scsi_sanitize *s, const uint8_t *b, size_t len)
{
	if (len < MARK_HEAD || b[0] != MARK_VERSION)
		return -EUCLEAN;
	s->overwrite = (b[1] & MARK_OVERWRITE) != 0;
	s->invert = (b[1] & MARK_INVERT) != 0;
	s->ause = (b[1] & MARK_AUSE) != 0;
	s->passes = b[2];
	s->pattern_len = get_be16(b + 3);
	if (s->passes == 0 || s->passes > 31 ||
	    s->pattern_len != len - MARK_HEAD ||
	    s->pattern_len > s->lun->block_bytes ||
	    s->overwrite != (s->pattern_len > 0))
		return -EUCLEAN;
	memcpy(s->pattern, b + MARK_HEAD, s->pattern_len);
	if ((b[1] & MARK_FAILED) != 0)
		s->stage = SANITIZE_FAILED;
	return 0;
}

static void begun(struct scsi_sanitize *s)
{
	log_info("unit %s: sanitize begun", s->lun->name);
	s->stage = SANITIZE_RUN;
	s->since_ns = env_now(s->lun->target->env);
	if (s->immed)
		answer(s, 0, 0);
	step(s);
}

static void mark_done(struct scsi_sanitize *s)
{
	switch (s->stage) {
	case SANITIZE_BEGIN:
		begun(s);
		break;
	case SANITIZE_FAILING:
		s->stage = SANITIZE_FAILED;
		answer(s, 0, SENSE_SANITIZE_FAILED);
		break;
	case SANITIZE_END:
		log_info("unit %s: sanitize done", s->lun->name);
		leave(s, 0);
		break;
	default:
		assert(s->stage == SANITIZE_EXIT);
		leave(s, 0);
		break;
	}
}

/* The mark is what it was: none, or that of a failure. */
static void not_begun(struct scsi_sanitize *s, int status)
{
	if (!s->again) {
		leave(s, status);
		return;
	}
	s->stage = SANITIZE_FAILED;
	s->ause = s->again_ause;
	answer(s, status, 0);
}

/*
 * The mark could not be stored.  A beginning that surely did not happen is
 * answered so; all else must be known before the unit opens again, so it is
 * tried until it is.
 */
static void mark_failed(struct scsi_sanitize *s, int status)
{
	struct env *env = s->lun->target->env;
	bool late;

	if (status == -ETIMEDOUT || status == -EIO)
		s->unknown = true;
	late = env_now(env) - s->mark_since_ns >= MARK_NS_MAX;
	if (status == -ENOENT) {
		leave(s, status);
		return;
	}
	if (s->stage == SANITIZE_BEGIN && !s->unknown &&
	    (late || (status != -EBUSY && status != -EAGAIN))) {
		not_begun(s, status);
		return;
	}
	if (late) {
		answer(s, status, 0);
		if (s->stage == SANITIZE_EXIT) {
			s->stage = SANITIZE_FAILED;
			return;
		}
	}
	env_timer_start(env, &s->retry, MARK_RETRY_NS);
}

static void marked(struct dom_sanitize *req, int status)
{
	struct scsi_sanitize *s = container_of(req, struct scsi_sanitize, mark);
	struct scsi_target *target = s->lun->target;

	s->waiting = false;
	target->busy++;
	if (s->stop)
		leave(s, -ECANCELED);
	else if (status == 0)
		mark_done(s);
	else
		mark_failed(s, status);
	target->busy--;
	scsi__target_check(target);
}

static void mark(struct scsi_sanitize *s)
{
	uint8_t b[MARK_HEAD + PAGE_BYTES];
	size_t len = mark_encode(s, b);
	int rv;

	rv = dom_sanitize_mark(s->lun->object, &s->mark, b, len, marked);
	if (rv == 0)
		s->waiting = true;
	else
		mark_failed(s, rv == -ENOMEM ? -EBUSY : rv);
}

static void mark_as(struct scsi_sanitize *s, enum scsi_sanitize_stage stage)
{
	s->stage = stage;
	s->unknown = false;
	s->mark_since_ns = env_now(s->lun->target->env);
	mark(s);
}

/* ---- the work ---- */

static void fail(struct scsi_sanitize *s, int status)
{
	log_error("unit %s: sanitize failed at byte %llu: %s", s->lun->name,
		  (unsigned long long)s->offset, err_text(status));
	mark_as(s, SANITIZE_FAILING);
}

/* Go on now, or once it is time for the bytes that are done. */
static void pace(struct scsi_sanitize *s)
{
	struct env *env = s->lun->target->env;
	uint64_t total = s->size / DOM_SECTOR * s->passes;
	uint64_t done = (s->size * s->pass + s->offset) / DOM_SECTOR;
	uint64_t due = s->since_ns;

	if (s->overwrite)
		due += (uint64_t)((double)done / (double)total *
				  (double)OVERWRITE_NS_MIN);
	if (due > env_now(env))
		env_timer_start(env, &s->retry, due - env_now(env));
	else
		step(s);
}

/*
 * When to try again what may be over by then: all that other commands hear of as
 * temporary (scsi_sense.c), a unit that was made smaller, and a full disk, as what
 * is written over needs room until the cleaner has had what was there.  0: never.
 */
static uint64_t try_again_ns(int status)
{
	switch (status) {
	case -EBUSY:
	case -EAGAIN:
	case -ENOMEM:
	case -ERANGE:
		return RETRY_NS;
	case -ENOSPC:
	case -ENODEV:
	case -ENXIO:
	case -ESHUTDOWN:
	case -ESTALE:
	case -ETIMEDOUT:
		return STUCK_RETRY_NS;
	default:
		return 0;
	}
}

/* A step did not happen.  Not for ever: who asked waits for an answer. */
static void step_failed(struct scsi_sanitize *s, int status)
{
	struct env *env = s->lun->target->env;
	uint64_t now = env_now(env), wait_ns = try_again_ns(status);

	if (!s->stuck) {
		s->stuck = true;
		s->stuck_since_ns = now;
	}
	if (wait_ns > 0 && now - s->stuck_since_ns < STUCK_NS_MAX)
		env_timer_start(env, &s->retry, wait_ns);
	else
		fail(s, status);
}

static void stepped(struct dom_io *io, int status)
{
	struct scsi_sanitize *s = container_of(io, struct scsi_sanitize, io);
	struct scsi_target *target = s->lun->target;

	s->waiting = false;
	sgl_put(s->part);
	s->part = NULL;
	target->busy++;
	if (s->stop) {
		leave(s, -ECANCELED);
	} else if (status < 0) {
		step_failed(s, status);
	} else {
		s->stuck = false;
		s->offset += s->part_len;
		pace(s);
	}
	target->busy--;
	scsi__target_check(target);
}

static void retry(struct env_timer *timer)
{
	struct scsi_sanitize *s =
		container_of(timer, struct scsi_sanitize, retry);
	struct scsi_target *target = s->lun->target;

	target->busy++;
	if (s->stage == SANITIZE_RUN)
		step(s);
	else
		mark(s);
	target->busy--;
	scsi__target_check(target);
}

static void invert_page(struct scsi_sanitize *s)
{
	for (unsigned i = 0; i < PAGE_BYTES; i++)
		s->page->data[i] ^= 0xff;
}

/*
 * Each block begins the pattern anew.  Where passes invert it the last one shall
 * leave it as it is (SBC-4 5.30.2.2).
 */
static int fill_page(struct scsi_sanitize *s)
{
	uint32_t block = s->lun->block_bytes;
	int rv;

	rv = pages_alloc(s->lun->target->env->pages, PAGE_FRONT, 1, &s->page);
	if (rv < 0) {
		s->page = NULL;
		return -EBUSY;
	}
	for (size_t i = 0; i < PAGE_BYTES; i++)
		s->page->data[i] = s->pattern[i % block % s->pattern_len];
	if (s->invert && s->passes % 2 == 0)
		invert_page(s);
	return 0;
}

static void next_pass(struct scsi_sanitize *s)
{
	s->pass++;
	s->offset = 0;
	if (s->invert && s->pass < s->passes)
		invert_page(s);
}

static int overwrite(struct scsi_sanitize *s)
{
	struct page_cache *pages = s->lun->target->env->pages;
	int rv = s->page == NULL ? fill_page(s) : 0;

	if (rv < 0)
		return rv;
	s->part =
		sgl_repeat(pages, s->page, s->part_len, s->offset % PAGE_BYTES);
	if (s->part == NULL)
		return -EBUSY;
	return dom_write(s->lun->object, &s->io, s->offset, s->part, 0,
			 stepped);
}

static void step(struct scsi_sanitize *s)
{
	size_t len;
	int rv;

	/*
	 * Another node went on with it, too, and was first: the unit is open, and
	 * what was written since must not be erased.
	 */
	if (dom_sanitize_state(s->lun->object, &len) == NULL) {
		log_info("unit %s: sanitize ended elsewhere", s->lun->name);
		leave(s, -ECANCELED);
		return;
	}
	/* It may have been resized since. */
	s->size = dom_object_size(s->lun->object);
	if (s->offset >= s->size)
		next_pass(s);
	if (s->pass == s->passes) {
		mark_as(s, SANITIZE_END);
		return;
	}
	s->part_len = MIN(s->size - s->offset,
			  s->overwrite ? SCSI_STEP_MAX : SCSI_UNMAP_STEP);
	/* No reservation applies to it any more. */
	s->io.nexus = NULL;
	s->io.deadline_ns = 0;
	if (s->overwrite)
		rv = overwrite(s);
	else
		rv = dom_unmap(s->lun->object, &s->io, s->offset, s->part_len,
			       stepped);
	if (rv == 0) {
		s->waiting = true;
		return;
	}
	sgl_put(s->part);
	s->part = NULL;
	step_failed(s, rv);
}

/* ---- beginning and end ---- */

static void attach(struct scsi_lun *lun, struct scsi_sanitize *s)
{
	assert(scsi__sanitize_of(lun) == NULL);
	s->lun = lun;
	s->size = dom_object_size(lun->object);
	s->retry.cb = retry;
	TAILQ_INSERT_TAIL(&lun->target->common->sanitizes, s, link);
	lun->refs++;
}

void scsi__sanitize_begin(struct scsi_lun *lun, struct scsi_sanitize *s)
{
	struct scsi_sanitize *old = scsi__sanitize_of(lun);
	struct scsi_lun *unit;

	if (old != NULL) { /* a failed one is tried again */
		assert(old->stage == SANITIZE_FAILED);
		s->again = true;
		s->again_ause = old->ause;
		drop(old);
	}
	attach(lun, s);
	SCSI_UNITS_FOREACH (unit, lun)
		scsi__kick(unit);
	mark_as(s, SANITIZE_BEGIN);
}

void scsi__sanitize_exit(struct scsi_sanitize *s)
{
	assert(s->stage == SANITIZE_FAILED);
	mark_as(s, SANITIZE_EXIT);
}

/* Do what the object's mark tells of, if it has one.  Takes @s: memory. */
static void resume(struct scsi_lun *lun, struct scsi_sanitize *s)
{
	const uint8_t *state;
	size_t len;

	state = dom_sanitize_state(lun->object, &len);
	if (state == NULL) {
		free(s);
		return;
	}
	memset(s, 0, sizeof(*s));
	attach(lun, s);
	s->stage = SANITIZE_RUN;
	if (mark_decode(s, state, len) < 0) {
		log_error("unit %s: a sanitize was under way, but what it did "
			  "is not known: sanitize again%s",
			  lun->name,
			  len == 0 ? ", or leave its failure mode" : "");
		s->passes = 1;
		s->stage = SANITIZE_FAILED;
		s->ause = len == 0; /* nobody forbade it for this one */
	}
	if (s->stage == SANITIZE_RUN) {
		s->immed = true;
		begun(s);
	}
}

int scsi__sanitize_opened(struct scsi_lun *lun)
{
	struct scsi_sanitize *s;
	size_t len;

	if (!lun->removed && scsi__sanitize_of(lun) == NULL &&
	    dom_sanitize_state(lun->object, &len) != NULL) {
		s = malloc(sizeof(*s));
		if (s == NULL)
			return -ENOMEM;
		resume(lun, s);
	}
	return 0;
}

void scsi__sanitize_closed(struct scsi_lun *lun)
{
	assert(scsi__sanitize_of(lun) == NULL ||
	       scsi__sanitize_of(lun)->lun != lun);
}

/*
 * The unit goes away: stop at the next step.  The mark stays, and another unit
 * of the object goes on by it.
 */
void scsi__sanitize_stop(struct scsi_lun *lun)
{
	struct scsi_sanitize *s = scsi__sanitize_of(lun);

	if (s == NULL || s->lun != lun)
		return;
	s->stop = true;
	if (s->waiting)
		return;
	env_timer_stop(lun->target->env, &s->retry);
	leave(s, -ECANCELED);
}
