/*
 * scsi_sanitize: SANITIZE (SBC-3 5.27): everything that was ever written to the
 * unit is given up (block erase, crypto erase) or overwritten.  It belongs to
 * the unit, not to the command that began it: aborts, resets and logouts do not
 * stop it, and until it ends most commands hear of its progress.
 */
#define LOG_ROOM LOG_ISCSI
#include "base/log.h"
#include "iscsi/scsi_int.h"

enum { OVERWRITE = 1, BLOCK_ERASE = 2, CRYPTO_ERASE = 3, EXIT_FAILED = 0x1f };

#define RETRY_NS (10 * MSEC)
/*
 * An overwrite is spread over at least this long: it comes beside the I/O of
 * other units, and hosts get to see that and how far it is.
 */
#define OVERWRITE_NS_MIN (8 * SEC)

struct scsi_sanitize {
	struct scsi_lun *lun;
	struct scsi_cmd *cmd; /* waits for the end; NULL: IMMED, or gone */
	struct page *page; /* the pattern; NULL: unmap */
	bool invert; /* in each pass but the first */
	bool running, stop, failed;
	bool ause; /* a failure may be left by EXIT FAILURE MODE */
	unsigned pass, passes;
	uint64_t offset, size, part_len, since_ns;
	struct sgl *part;
	struct dom_io io;
	struct env_timer retry;
};

bool scsi__sanitize_running(const struct scsi_lun *lun, uint16_t *progress)
{
	const struct scsi_sanitize *s = lun->sanitize;
	uint64_t share;

	if (s == NULL || !s->running)
		return false;
	/* In 65536ths of all passes; sizes are far below 2^48. */
	share = ((s->offset >> 9) << 16) / MAX(s->size >> 9, 1u);
	*progress =
		(uint16_t)MIN((s->pass * 65536 + share) / s->passes, 65535u);
	return true;
}

bool scsi__sanitize_failed(const struct scsi_lun *lun)
{
	return lun->sanitize != NULL && lun->sanitize->failed;
}

static void sanitize_free(struct scsi_sanitize *s)
{
	struct scsi_lun *lun = s->lun;

	if (s->page != NULL)
		page_put(lun->target->env->pages, s->page);
	lun->sanitize = NULL;
	free(s);
	scsi__lun_put(lun);
}

static void finish(struct scsi_sanitize *s, int status)
{
	struct scsi_lun *lun = s->lun;
	struct scsi_target *target = lun->target;
	struct scsi_cmd *cmd = s->cmd;

	if (status < 0)
		log_error("unit %s: sanitize failed at byte %llu: %s",
			  lun->name, (unsigned long long)s->offset,
			  err_text(status));
	else
		log_info("unit %s: sanitize done", lun->name);
	s->running = false;
	s->failed = status < 0;
	s->cmd = NULL;
	target->busy++;
	if (!s->failed || s->stop)
		sanitize_free(s);
	if (cmd != NULL) {
		cmd->cancel = NULL;
		if (status < 0)
			scsi__check(cmd, SENSE(3, 0x31, 0x03));
		scsi__done(cmd);
	}
	target->busy--;
	scsi__target_check(target);
}

static void step(struct scsi_sanitize *s);

/* Go on now, or once it is time for the bytes that are done. */
static void pace(struct scsi_sanitize *s)
{
	struct env *env = s->lun->target->env;
	uint64_t total = s->size / DOM_SECTOR * s->passes;
	uint64_t done = (s->size * s->pass + s->offset) / DOM_SECTOR;
	uint64_t due = s->since_ns;

	if (s->page != NULL)
		due += (uint64_t)((double)done / (double)total *
				  (double)OVERWRITE_NS_MIN);
	if (due > env_now(env))
		env_timer_start(env, &s->retry, due - env_now(env));
	else
		step(s);
}

static void stepped(struct dom_io *io, int status)
{
	struct scsi_sanitize *s = container_of(io, struct scsi_sanitize, io);

	sgl_put(s->part);
	s->part = NULL;
	if (s->stop) {
		finish(s, -ECANCELED);
		return;
	}
	if (status < 0 && status != -ENXIO && status != -EBUSY &&
	    status != -ETIMEDOUT) {
		finish(s, status);
		return;
	}
	if (status < 0) { /* unavailable for a while: go on when it is back */
		env_timer_start(s->lun->target->env, &s->retry, RETRY_NS);
		return;
	}
	s->offset += s->part_len;
	pace(s);
}

static void retry(struct env_timer *timer)
{
	struct scsi_sanitize *s =
		container_of(timer, struct scsi_sanitize, retry);

	step(s);
}

static void next_pass(struct scsi_sanitize *s)
{
	s->pass++;
	s->offset = 0;
	if (!s->invert || s->pass == s->passes)
		return;
	for (unsigned i = 0; i < PAGE_BYTES; i++)
		s->page->data[i] ^= 0xff;
}

static void step(struct scsi_sanitize *s)
{
	struct dom_object *object = s->lun->object;
	int rv;

	if (s->offset == s->size)
		next_pass(s);
	if (s->pass == s->passes) {
		finish(s, 0);
		return;
	}
	s->part_len = MIN(s->size - s->offset,
			  s->page == NULL ? SCSI_UNMAP_STEP : SCSI_STEP_MAX);
	/* No reservation applies to it any more. */
	s->io.nexus = NULL;
	s->io.deadline_ns = 0;
	if (s->page == NULL) {
		rv = dom_unmap(object, &s->io, s->offset, s->part_len, stepped);
	} else {
		s->part = sgl_repeat(s->lun->target->env->pages, s->page,
				     s->part_len, s->offset % PAGE_BYTES);
		rv = s->part == NULL ? -EBUSY
				     : dom_write(object, &s->io, s->offset,
						 s->part, 0, stepped);
	}
	if (rv == 0)
		return;
	sgl_put(s->part);
	s->part = NULL;
	if (rv == -EBUSY || rv == -ENXIO)
		env_timer_start(s->lun->target->env, &s->retry, RETRY_NS);
	else
		finish(s, rv);
}

/* The unit goes away: stop at the next step. */
void scsi__sanitize_stop(struct scsi_lun *lun)
{
	struct scsi_sanitize *s = lun->sanitize;

	if (s == NULL)
		return;
	s->stop = true;
	if (!s->running) {
		sanitize_free(s);
		return;
	}
	if (env_timer_active(&s->retry)) {
		env_timer_stop(lun->target->env, &s->retry);
		finish(s, -ECANCELED);
	}
}

/* ---- the command ---- */

bool scsi__sanitize_parse(struct scsi_cmd *cmd)
{
	unsigned sa = cmd->cdb[1] & 0x1f, len = get_be16(cmd->cdb + 7);

	if (sa != OVERWRITE) {
		if (len != 0)
			return scsi__check_field(cmd, 7, -1);
		return true;
	}
	if (len < 5 || len > cmd->lun->block_bytes + 4)
		return scsi__check_field(cmd, 7, -1);
	cmd->dir = SCSI_DIR_OUT;
	cmd->transfer_len = len;
	return true;
}

/* Each block begins the pattern anew. */
static int fill_page(struct scsi_cmd *cmd, const uint8_t *pattern, size_t len,
		     struct page **out)
{
	uint32_t block = cmd->lun->block_bytes;
	struct page *page;
	int rv;

	rv = pages_alloc(cmd->target->env->pages, PAGE_FRONT, 1, &page);
	if (rv < 0)
		return -EBUSY;
	for (size_t i = 0; i < PAGE_BYTES; i++)
		page->data[i] = pattern[i % block % len];
	*out = page;
	return 0;
}

static bool parse_overwrite(struct scsi_cmd *cmd, struct scsi_sanitize *s)
{
	const uint8_t *list = cmd->memory;
	unsigned count = list[0] & 0x1f, len = get_be16(list + 2);
	int rv;

	if (count == 0)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 0);
	if (len == 0 || len > cmd->lun->block_bytes ||
	    len > cmd->transfer_len - 4)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 2);
	rv = fill_page(cmd, list + 4, len, &s->page);
	if (rv < 0) {
		scsi__status(cmd, rv);
		return false;
	}
	s->invert = (list[0] & 0x80) != 0;
	s->passes = count;
	return true;
}

static void detach(struct scsi_cmd *cmd)
{
	cmd->lun->sanitize->cmd = NULL;
	cmd->cancel = NULL;
}

static void start(struct scsi_cmd *cmd, struct scsi_sanitize *s)
{
	struct scsi_lun *lun = cmd->lun;
	bool immed = (cmd->cdb[1] & 0x80) != 0;

	s->lun = lun;
	s->running = true;
	s->ause = (cmd->cdb[1] & 0x20) != 0;
	s->size = dom_object_size(lun->object);
	s->retry.cb = retry;
	s->since_ns = env_now(lun->target->env);
	lun->sanitize = s;
	lun->refs++;
	log_info("unit %s: sanitize begun by %s", lun->name,
		 cmd->it->dom.initiator_port);
	if (!immed) {
		s->cmd = cmd;
		cmd->cancel = detach;
	}
	step(s);
	if (immed)
		scsi__done(cmd);
}

static void exit_failed(struct scsi_cmd *cmd)
{
	struct scsi_sanitize *s = cmd->lun->sanitize;

	if (s != NULL && s->failed && s->ause)
		sanitize_free(s);
	else if (s != NULL && s->failed)
		scsi__check_field(cmd, 1, 4);
	scsi__done(cmd);
}

void scsi__sanitize(struct scsi_cmd *cmd)
{
	unsigned sa = cmd->cdb[1] & 0x1f;
	struct scsi_sanitize *s;

	if (sa == EXIT_FAILED) {
		exit_failed(cmd);
		return;
	}
	if (sa == OVERWRITE && scsi__list(cmd) == NULL)
		return;
	s = calloc(1, sizeof(*s));
	if (s == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return;
	}
	s->passes = 1;
	if (sa == OVERWRITE && !parse_overwrite(cmd, s)) {
		free(s);
		scsi__done(cmd);
		return;
	}
	/* Two may have passed the checks at once. */
	if (cmd->lun->sanitize != NULL && cmd->lun->sanitize->running) {
		if (s->page != NULL)
			page_put(cmd->target->env->pages, s->page);
		free(s);
		scsi__check(cmd, SENSE_SANITIZING);
		scsi__done(cmd);
		return;
	}
	if (cmd->lun->sanitize != NULL) /* a failed one is tried again */
		sanitize_free(cmd->lun->sanitize);
	start(cmd, s);
}
