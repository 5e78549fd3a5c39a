/*
 * scsi_copy_run: the work of an EXTENDED COPY, segment by segment in steps: a
 * step's blocks are read from the one unit and their pages written to the other.
 * What is a hole there becomes one here.
 *
 * A unit of the command's own target is used by the nexus that asked, through
 * the unit's own handle.  One of another target is asked for by its name before
 * each step, and before that is written (scsi_lookup), so that a copy goes no
 * further when the initiator may not use it any more; it has a handle of its own,
 * and a nexus that no host has: whatever reservation is there shuts it out, and the
 * host does without the copy.
 *
 * struct scsi_copy outlives the command while handles are being closed.
 */
#include "iscsi/scsi_int.h"

#include <stdio.h>

/* Of a segment (SPC-4 5.16.7.4): a unit that failed, or is not what was said. */
#define SENSE_THIRD_PARTY SENSE(0xa, 0x0d, 0x01)
#define SENSE_BEYOND SENSE(0xa, 0x00, 0x00)

static void step(struct scsi_copy *copy);
static void write_next(struct scsi_copy *copy);

/*
 * Of the newest with this list identifier that the nexus asked the unit for: one
 * that runs, or the last ones that have ended; NULL: none.
 */
const struct scsi_copy_result *scsi__copy_result(const struct scsi_it_lun *it,
						 uint8_t list_id)
{
	const struct scsi_copy *copy;

	TAILQ_FOREACH (copy, &it->lun->target->common->copies, link)
		if (copy->cmd->it == it && copy->identified &&
		    copy->result.list_id == list_id)
			return &copy->result;
	for (unsigned i = 0; i < ARRAY_LEN(it->copies); i++)
		if (it->copies[i].state != COPY_RUNS &&
		    it->copies[i].list_id == list_id)
			return &it->copies[i];
	return NULL;
}

/* What is kept of it, in place of the same identifier's, or of the oldest. */
static void keep_result(struct scsi_copy *copy)
{
	struct scsi_it_lun *it = copy->cmd->it;
	unsigned last = ARRAY_LEN(it->copies) - 1, i;

	if (!copy->hold || !copy->identified)
		return;
	for (i = 0; i < last; i++)
		if (it->copies[i].state == COPY_RUNS ||
		    it->copies[i].list_id == copy->result.list_id)
			break;
	memmove(&it->copies[1], &it->copies[0], i * sizeof(it->copies[0]));
	it->copies[0] = copy->result;
	it->copies[0].state =
		copy->cmd->status == SCSI_GOOD ? COPY_DONE : COPY_FAILED;
}

/* ---- the end ---- */

/* Handles and nexuses are gone: so is it. */
static void copy_put(struct scsi_copy *copy)
{
	struct scsi_target *target = copy->target;

	if (--copy->refs > 0)
		return;
	free(copy);
	target->busy--;
	scsi__target_check(target);
}

static void object_drop(struct scsi_cscd *cscd)
{
	dom_object_close(cscd->object);
	cscd->object = NULL;
	copy_put(cscd->copy);
}

static void nexus_closed(void *arg)
{
	object_drop(arg);
}

/* The command is answered, or is being: let go of the units. */
static void leave(struct scsi_copy *copy)
{
	TAILQ_REMOVE(&copy->target->common->copies, copy, link);
	copy->target->common->copies_count--;
	copy->cmd->cancel = NULL;
	copy->cmd = NULL;
	sgl_put(copy->sgl);
	copy->sgl = NULL;
	for (unsigned i = 0; i < copy->cscds_count; i++) {
		struct scsi_cscd *cscd = &copy->cscds[i];

		if (cscd->it != NULL)
			scsi__it_put(cscd->it);
		/* One that is being opened or looked up has a reference. */
		if (cscd->object != NULL)
			dom_nexus_close(cscd->object, &cscd->nexus,
					nexus_closed, cscd);
	}
	copy_put(copy);
}

static void finish(struct scsi_copy *copy)
{
	struct scsi_cmd *cmd = copy->cmd;

	keep_result(copy);
	leave(copy);
	scsi__done(cmd);
}

/* It waits for a name or a handle, and need not. */
static void cancel(struct scsi_cmd *cmd)
{
	leave(cmd->copy);
}

/* The segment at hand ends it; @byte of its descriptor, 0: none. */
static void fail(struct scsi_copy *copy, unsigned sense, unsigned byte)
{
	scsi__check_segment(copy->cmd, sense, copy->at, byte);
	finish(copy);
}

/*
 * What dom says of a step.  Hosts repeat what looks temporary, the whole copy from
 * its beginning; but one that has written may have changed what it reads (overlap,
 * a segment onto what another one read).  So that ends as COPY ABORTED, which they
 * do not repeat unasked.  Of no space they must hear in any case.
 */
static void fail_status(struct scsi_copy *copy, int status)
{
	switch (status) {
	case -EBUSY:
	case -EAGAIN:
	case -ENOMEM:
	case -ETIMEDOUT:
		if (copy->wrote) {
			fail(copy, SENSE_THIRD_PARTY, 0);
			break;
		}
		/* fall through */
	case -ENOSPC:
		scsi__status(copy->cmd, status);
		finish(copy);
		break;
	case -ENOENT:
	case -ENXIO:
	case -ENODEV:
	case -ESHUTDOWN:
		fail(copy, SENSE_UNREACHABLE, 0);
		break;
	case -ERANGE:
		fail(copy, SENSE_BEYOND, 10);
		break;
	default:
		fail(copy, SENSE_THIRD_PARTY, 0);
		break;
	}
}

/* ---- units ---- */

static bool is_name_of(const struct scsi_cscd *cscd, const struct uuid *oid)
{
	uint8_t naa[SCSI_NAA_BYTES];

	scsi_naa(oid, naa);
	return memcmp(naa, cscd->naa, sizeof(naa)) == 0;
}

static struct scsi_lun *own_find(const struct scsi_copy *copy,
				 const struct scsi_cscd *cscd)
{
	const struct scsi_target *target = copy->target;

	for (unsigned i = 0; i < target->luns_size; i++)
		if (target->luns[i] != NULL &&
		    is_name_of(cscd, &target->luns[i]->oid))
			return target->luns[i];
	return NULL;
}

/* A wait is over: the copy if it goes on, NULL if its command has ended. */
static struct scsi_copy *waited(struct scsi_cscd *cscd)
{
	struct scsi_copy *copy = cscd->copy;

	if (copy->cmd == NULL) {
		copy_put(copy);
		return NULL;
	}
	copy->cmd->cancel = NULL;
	assert(copy->refs > 1); /* its command has one */
	copy->refs--;
	return copy;
}

static void wait(struct scsi_cscd *cscd)
{
	cscd->copy->refs++;
	cscd->copy->cmd->cancel = cancel;
}

/* A unit is found: back to what it is needed for. */
static void go_on(struct scsi_copy *copy)
{
	if (copy->sgl != NULL)
		write_next(copy);
	else
		step(copy);
}

static void opened(struct dom_object_open *open, int status)
{
	struct scsi_cscd *cscd = container_of(open, struct scsi_cscd, open);
	struct scsi_copy *copy = cscd->copy;
	struct scsi_target *target = copy->target;

	target->busy++;
	if (status == 0 && copy->cmd == NULL) {
		dom_object_close(open->object);
	} else if (status == 0) {
		cscd->object = open->object;
		snprintf(cscd->nexus.initiator_port,
			 sizeof(cscd->nexus.initiator_port),
			 "%s,i,0x000000000000", target->iqn);
		dom_nexus_open(cscd->object, &cscd->nexus);
		copy->refs++; /* object_drop() */
	}
	if (waited(cscd) != NULL) {
		if (status == 0)
			go_on(copy);
		else
			fail_status(copy,
				    status == -ETIMEDOUT ? -ENXIO : status);
	}
	target->busy--;
	scsi__target_check(target);
}

static void looked_up(struct scsi_lookup *req, int status)
{
	struct scsi_cscd *cscd = container_of(req, struct scsi_cscd, lookup);
	struct scsi_target *target = cscd->copy->target;
	struct scsi_copy *copy;

	target->busy++;
	copy = waited(cscd);
	if (copy == NULL)
		goto out;
	if (status < 0) {
		fail_status(copy, status);
		goto out;
	}
	if (cscd->object != NULL &&
	    !uuid_equal(dom_object_id(cscd->object), &req->object)) {
		fail(copy, SENSE_UNREACHABLE, 0);
		goto out;
	}
	cscd->known = true;
	if (cscd->object != NULL) {
		go_on(copy);
		goto out;
	}
	status =
		dom_object_open(target->dom, &cscd->open, &req->object, opened);
	if (status == 0)
		wait(cscd);
	else
		fail_status(copy, status);
out:
	target->busy--;
	scsi__target_check(target);
}

/*
 * 0: it may be used in this step; 1: it is being found, which goes on with the
 * step; -1: that was the copy's end.
 */
static int find(struct scsi_copy *copy, struct scsi_cscd *cscd)
{
	struct scsi_common *common = copy->target->common;
	struct scsi_lookup *req = &cscd->lookup;
	struct scsi_lun *lun;

	if (cscd->it != NULL || cscd->known)
		return 0;
	if (!cscd->named) {
		fail(copy, SENSE_UNREACHABLE, 0);
		return -1;
	}
	lun = cscd->object == NULL ? own_find(copy, cscd) : NULL;
	if (lun != NULL) {
		cscd->it = scsi__it_get(copy->cmd->nexus, lun);
		if (cscd->it == NULL) {
			fail_status(copy, -EBUSY);
			return -1;
		}
		cscd->it->refs++;
		return 0;
	}
	if (common->lookup == NULL) {
		fail(copy, SENSE_UNREACHABLE, 0);
		return -1;
	}
	memcpy(req->naa, cscd->naa, sizeof(req->naa));
	strcpy(req->initiator_port, copy->cmd->nexus->dom.initiator_port);
	req->target = copy->target->iqn;
	wait(cscd);
	common->lookup(common->iscsi, req, looked_up);
	return 1;
}

/* Whose handle it is, and whose nexus asks there. */
static struct dom_object *object_of(const struct scsi_cscd *cscd)
{
	return cscd->it != NULL ? cscd->it->lun->object : cscd->object;
}

static struct dom_nexus *nexus_of(struct scsi_cscd *cscd)
{
	return cscd->it != NULL ? &cscd->it->dom : &cscd->nexus;
}

static bool sanitizing(const struct scsi_cscd *cscd)
{
	size_t len;

	if (cscd->it != NULL)
		return scsi__sanitize_of(cscd->it->lun) != NULL;
	return dom_sanitize_state(cscd->object, &len) != NULL;
}

static bool read_only(const struct scsi_cscd *cscd)
{
	if (cscd->it != NULL)
		return cscd->it->lun->read_only || cscd->it->lun->swp;
	return cscd->lookup.read_only;
}

static bool ready(const struct scsi_cscd *cscd)
{
	const struct scsi_lun *lun = cscd->it != NULL ? cscd->it->lun : NULL;

	if (lun != NULL && (lun->removed || scsi__not_ready(lun) != 0))
		return false;
	return !sanitizing(cscd);
}

/* False: that was the end.  @lba: where the segment begins; @byte: its field. */
static bool usable(struct scsi_copy *copy, const struct scsi_cscd *cscd,
		   uint64_t lba, unsigned byte)
{
	const struct scsi_copy_segment *s = &copy->segments[copy->at];
	uint32_t block = cscd->it != NULL ? cscd->it->lun->block_bytes
					  : cscd->lookup.block_bytes;
	uint64_t blocks;

	if (!ready(cscd)) {
		fail(copy, SENSE_UNREACHABLE, 0);
		return false;
	}
	if (cscd->block_bytes != block) {
		scsi__check_param(copy->cmd, SENSE_INVALID_PARAM,
				  cscd->at + 29);
		finish(copy);
		return false;
	}
	blocks = dom_object_size(object_of(cscd)) / block;
	if (lba > blocks || s->len / block > blocks - lba) {
		fail(copy, SENSE_BEYOND, byte);
		return false;
	}
	return true;
}

/* ---- the steps ---- */

/* The copy if it goes on; NULL: that was its end. */
static struct scsi_copy *io_end(struct dom_io *io, int status)
{
	struct scsi_copy *copy = container_of(io, struct scsi_cmd, io)->copy;
	/* -ECANCELED that is not ours is a PREEMPT AND ABORT: let it see that. */
	int told = status == -ECANCELED ? status : 0;
	struct scsi_cmd *cmd = copy->cmd;

	sgl_put(cmd->part);
	cmd->part = NULL;
	if (cmd->killed || told < 0) {
		leave(copy);
		(void)scsi__io_end(io, status);
		return NULL;
	}
	cmd = scsi__io_end(io, 0);
	assert(cmd == copy->cmd);
	if (status == 0)
		return copy;
	if (status == -EPERM && copy->cmd->io.nexus == &cmd->it->dom) {
		scsi__conflict(cmd);
		finish(copy);
	} else {
		fail_status(copy, status);
	}
	return NULL;
}

static void io_begun(struct scsi_copy *copy, int rv)
{
	if (rv < 0)
		fail_status(copy, rv);
	else
		scsi__io(copy->cmd, 0);
}

static void written(struct dom_io *io, int status)
{
	struct scsi_copy *copy = io_end(io, status);

	if (copy != NULL)
		write_next(copy);
}

/* From byte @at of what was read: how much is alike, and is it a hole? */
static size_t run_at(const struct sgl *sgl, size_t at, bool *hole)
{
	const struct page *zero = page_zero();
	size_t skip = at, len = 0;

	for (unsigned i = 0; i < sgl->pieces_count; i++) {
		const struct sgl_piece *piece = &sgl->pieces[i];

		if (skip >= piece->len) {
			skip -= piece->len;
			continue;
		}
		if (len == 0)
			*hole = piece->page == zero;
		else if ((piece->page == zero) != *hole)
			break;
		len += piece->len - skip;
		skip = 0;
	}
	return len;
}

/* False: the destination may not be written, which was the end, or it waits. */
static bool may_write(struct scsi_copy *copy)
{
	struct scsi_copy_segment *s = &copy->segments[copy->at];
	struct scsi_cscd *to = &copy->cscds[s->to];

	if (find(copy, to) != 0 || !usable(copy, to, s->to_lba, 20))
		return false;
	if (read_only(to)) {
		scsi__check(copy->cmd, SENSE(7, 0x27, 0x00));
		finish(copy);
		return false;
	}
	return true;
}

/* What was read, run by run. */
static void write_next(struct scsi_copy *copy)
{
	struct scsi_copy_segment *s = &copy->segments[copy->at];
	struct scsi_cscd *to = &copy->cscds[s->to];
	struct scsi_cmd *cmd = copy->cmd;
	uint64_t offset = s->to_lba * to->block_bytes + copy->offset;
	bool hole = false;
	size_t len;
	int rv = -ENOMEM;

	if (copy->written == copy->sgl->len_bytes) {
		s->done += copy->written;
		copy->result.bytes += copy->written;
		counter_add(&scsi__copied_bytes, copy->written);
		sgl_put(copy->sgl);
		copy->sgl = NULL;
		/* Whether they may be used is asked anew. */
		copy->cscds[s->from].known = to->known = false;
		step(copy);
		return;
	}
	if (!may_write(copy))
		return;
	offset += copy->written;
	len = run_at(copy->sgl, copy->written, &hole);
	copy->written += len;
	copy->wrote = true;
	cmd->io.nexus = nexus_of(to);
	if (hole) {
		rv = dom_unmap(object_of(to), &cmd->io, offset, len, written);
	} else {
		cmd->part = sgl_slice(copy->sgl, copy->written - len, len);
		if (cmd->part != NULL)
			rv = dom_write(object_of(to), &cmd->io, offset,
				       cmd->part, 0, written);
	}
	io_begun(copy, rv);
}

static void was_read(struct dom_io *io, int status)
{
	struct sgl *sgl = io->sgl;
	struct scsi_copy *copy;

	io->sgl = NULL;
	copy = io_end(io, status);
	if (copy == NULL) {
		sgl_put(sgl);
		return;
	}
	copy->sgl = sgl;
	copy->written = 0;
	/* Reading may have taken its time: it may be another host's by now. */
	copy->cscds[copy->segments[copy->at].to].known = false;
	write_next(copy);
}

/* False: that was the end, or it waits. */
static bool units_ready(struct scsi_copy *copy)
{
	struct scsi_copy_segment *s = &copy->segments[copy->at];
	struct scsi_cscd *from = &copy->cscds[s->from];

	return find(copy, from) == 0 && usable(copy, from, s->from_lba, 12) &&
	       may_write(copy);
}

/*
 * Onto blocks of its own that are yet to be read: from the end on, so that each
 * is read before it is written, in the way of memmove().
 */
static bool backwards(const struct scsi_copy *copy,
		      const struct scsi_copy_segment *s)
{
	const struct scsi_cscd *from = &copy->cscds[s->from];
	const struct scsi_cscd *to = &copy->cscds[s->to];

	return memcmp(from->naa, to->naa, sizeof(to->naa)) == 0 &&
	       s->to_lba > s->from_lba &&
	       s->to_lba - s->from_lba < s->len / from->block_bytes;
}

/*
 * Bytes of a step.  No session's share has its memory, and there are copies on all
 * shards: each takes a part of what is left, so that they leave some to others.
 */
static uint64_t step_max(const struct scsi_copy *copy)
{
	struct page_cache *pages = copy->target->env->pages;
	size_t part = pages_left(pages, PAGE_FRONT, 0) / SCSI_COPIES_MAX;

	return MIN(MAX((uint64_t)part * PAGE_BYTES, SCSI_COPY_STEP_LEAST),
		   SCSI_COPY_STEP);
}

/* The next bytes of a segment, the next segment, or the end. */
static void step(struct scsi_copy *copy)
{
	struct scsi_cmd *cmd = copy->cmd;
	struct scsi_copy_segment *s;
	struct scsi_cscd *from;
	uint64_t offset, len;

	while (copy->at < copy->segments_count &&
	       copy->segments[copy->at].bad == 0 &&
	       copy->segments[copy->at].done == copy->segments[copy->at].len)
		copy->result.segments = ++copy->at;
	if (copy->at == copy->segments_count) {
		finish(copy);
		return;
	}
	if (!scsi__check_unit(cmd)) {
		if (copy->wrote) /* "not ready" would have it repeated */
			fail(copy, SENSE_UNREACHABLE, 0);
		else
			finish(copy);
		return;
	}
	if (!scsi__in_time(cmd)) {
		fail_status(copy, -ETIMEDOUT);
		return;
	}
	s = &copy->segments[copy->at];
	if (s->bad != 0) {
		fail(copy, s->bad, s->bad == SENSE_UNREACHABLE ? 4 : 10);
		return;
	}
	if (!units_ready(copy))
		return;
	from = &copy->cscds[s->from];
	len = MIN(s->len - s->done, step_max(copy));
	copy->offset = backwards(copy, s) ? s->len - s->done - len : s->done;
	offset = s->from_lba * from->block_bytes + copy->offset;
	cmd->io.nexus = nexus_of(from);
	io_begun(copy,
		 dom_read(object_of(from), &cmd->io, offset, len, was_read));
}

/*
 * An initiator, whichever of its ports it uses, may have no more copies than are
 * left to others.
 */
static bool has_its_share(const struct scsi_cmd *cmd)
{
	const struct scsi_common *common = cmd->target->common;
	const char *port = cmd->nexus->dom.initiator_port;
	const char *isid = strstr(port, ",i,0x");
	size_t len =
		isid != NULL ? (size_t)(isid - port) + 1 : strlen(port) + 1;
	const struct scsi_copy *copy;
	unsigned own = 0;

	TAILQ_FOREACH (copy, &common->copies, link)
		if (strncmp(copy->cmd->nexus->dom.initiator_port, port, len) ==
		    0)
			own++;
	return own >= SCSI_COPIES_MAX - common->copies_count;
}

/* Takes @copy. */
void scsi__copy_begin(struct scsi_cmd *cmd, struct scsi_copy *copy)
{
	struct scsi_common *common = cmd->target->common;

	if (has_its_share(cmd)) {
		free(copy);
		scsi__status(cmd, -EBUSY);
		scsi__done(cmd);
		return;
	}
	copy->target = cmd->target;
	copy->cmd = cmd;
	copy->refs = 1;
	for (unsigned i = 0; i < copy->cscds_count; i++)
		copy->cscds[i].copy = copy;
	cmd->copy = copy;
	common->copies_count++;
	TAILQ_INSERT_HEAD(&common->copies, copy, link);
	copy->target->busy++;
	step(copy);
}
