/*
 * lun: the logical units of a target and the nexuses that see them.
 *
 * A unit opens its object in the background and tries again while the object is
 * unavailable; until then it answers "becoming ready".  What holds a unit: the
 * target's table, each nexus at it, a sanitize.  A nexus at a unit lives until
 * its last command has ended; then dom is told, and no late command of an
 * older login can execute (R32).
 */
#define LOG_ROOM LOG_ISCSI
#include "base/log.h"
#include "iscsi/scsi_int.h"

#include <stdio.h>

#define OPEN_RETRY_NS (500 * MSEC)

/* ---- lookup ---- */

/*
 * The number in a LUN field (SAM-5 4.7): peripheral addressing on bus 0, or
 * flat; the other levels must be zero.  -1: another form.
 */
int scsi__lun_decode(uint64_t lun_field)
{
	unsigned first = (unsigned)(lun_field >> 48);

	if ((lun_field & 0xffffffffffffull) != 0)
		return -1;
	if (first >> 8 == 0)
		return (int)(first & 0xff);
	if (first >> 14 == 1)
		return (int)(first & 0x3fff);
	return -1;
}

bool scsi_lun_same(uint64_t a, uint64_t b)
{
	return a == b || (scsi__lun_decode(a) >= 0 &&
			  scsi__lun_decode(a) == scsi__lun_decode(b));
}

struct scsi_lun *scsi__lun_find(struct scsi_target *target, uint64_t lun_field)
{
	int number = scsi__lun_decode(lun_field);

	if (number < 0 || (unsigned)number >= target->luns_size)
		return NULL;
	return target->luns[number];
}

struct scsi_it_lun *scsi__it_find(struct scsi_nexus *nexus,
				  const struct scsi_lun *lun)
{
	if (lun->number >= nexus->units_count)
		return NULL;
	return nexus->units[lun->number];
}

bool scsi__same_object(const struct scsi_lun *a, const struct scsi_lun *b)
{
	return a->target->dom == b->target->dom && uuid_equal(&a->oid, &b->oid);
}

bool scsi_lun_object(struct scsi_target *target, uint64_t lun_field,
		     struct uuid *object)
{
	struct scsi_lun *lun = scsi__lun_find(target, lun_field);

	if (lun == NULL)
		return false;
	*object = lun->oid;
	return true;
}

unsigned scsi_lun_congestion(struct scsi_target *target, uint64_t lun_field)
{
	struct scsi_lun *lun = scsi__lun_find(target, lun_field);

	if (lun == NULL || lun->object == NULL)
		return 0;
	return dom_object_congestion(lun->object);
}

/* ---- targets ---- */

void scsi_common_init(struct scsi_common *common)
{
	TAILQ_INIT(&common->units);
	for (unsigned i = 0; i < SCSI_BUCKETS; i++)
		TAILQ_INIT(&common->units_by_object[i]);
	TAILQ_INIT(&common->tmfs);
	TAILQ_INIT(&common->sanitizes);
	TAILQ_INIT(&common->copies);
	common->copies_count = 0;
	common->lookup = NULL;
	common->iscsi = NULL;
	common->seq = 0;
	scsi__ops_index(common);
}

int scsi_target_open(struct env *env, struct dom *dom,
		     struct scsi_common *common, const char *iqn,
		     struct scsi_target **out)
{
	struct scsi_target *target;

	if (strlen(iqn) > ISCSI_NAME_MAX)
		return -EINVAL;
	target = calloc(1, sizeof(*target));
	if (target == NULL)
		return -ENOMEM;
	target->env = env;
	target->dom = dom;
	target->common = common;
	strcpy(target->iqn, iqn);
	TAILQ_INIT(&target->all);
	TAILQ_INIT(&target->nexuses);
	*out = target;
	return 0;
}

static void target_closed(struct env_task *task)
{
	struct scsi_target *target =
		container_of(task, struct scsi_target, close_task);
	void (*cb)(void *arg) = target->close_cb;
	void *arg = target->close_arg;

	free(target->luns);
	free(target);
	cb(arg);
}

void scsi__target_check(struct scsi_target *target)
{
	if (!target->closing || target->closed || target->busy > 0)
		return;
	if (!TAILQ_EMPTY(&target->all))
		return;
	assert(TAILQ_EMPTY(&target->nexuses));
	target->closed = true;
	target->close_task.cb = target_closed;
	env_defer(target->env, &target->close_task);
}

void scsi_target_close(struct scsi_target *target, void (*cb)(void *arg),
		       void *arg)
{
	assert(TAILQ_EMPTY(&target->nexuses));
	target->closing = true;
	target->close_cb = cb;
	target->close_arg = arg;
	target->busy++;
	for (unsigned i = 0; i < target->luns_size; i++)
		if (target->luns[i] != NULL)
			scsi_lun_unset(target, i);
	target->busy--;
	scsi__target_check(target);
}

void scsi_target_ports(struct scsi_target *target, const uint16_t *rtpi,
		       const uint16_t *tpgt, unsigned count)
{
	size_t bytes = MIN(count, SCSI_PORTS_MAX) * sizeof(*rtpi);

	if (target->ports_count == MIN(count, SCSI_PORTS_MAX) &&
	    memcmp(target->rtpi, rtpi, bytes) == 0 &&
	    memcmp(target->tpgt, tpgt, bytes) == 0)
		return;
	target->ports_count = MIN(count, SCSI_PORTS_MAX);
	memcpy(target->rtpi, rtpi, bytes);
	memcpy(target->tpgt, tpgt, bytes);
	/* VPD page 88h is INQUIRY data as any (SPC-4 6.6.1). */
	for (unsigned i = 0; i < target->luns_size; i++)
		if (target->luns[i] != NULL)
			scsi__ua_set_all(target->luns[i], UA_INQUIRY, NULL);
}

/* ---- a nexus at a unit ---- */

static void nexus_closed(struct env_task *task)
{
	struct scsi_nexus_closing *closing =
		container_of(task, struct scsi_nexus_closing, task);
	struct scsi_target *target = closing->target;

	target->busy--;
	closing->cb(closing->arg); /* may free the nexus */
	scsi__target_check(target);
}

/* One at a time: a session's end takes no memory. */
static struct scsi_nexus_closing *
closing_begin(struct scsi_nexus *nexus, void (*cb)(void *arg), void *arg)
{
	struct scsi_nexus_closing *closing = &nexus->closing;

	assert(closing->waiting == 0 && !closing->task.queued);
	*closing = (struct scsi_nexus_closing){ .target = nexus->target,
						.waiting = 1,
						.task.cb = nexus_closed,
						.cb = cb,
						.arg = arg };
	closing->target->busy++;
	return closing;
}

static void closing_put(struct scsi_nexus_closing *closing)
{
	if (closing == NULL || --closing->waiting > 0)
		return;
	env_defer(closing->target->env, &closing->task);
}

static void it_free(struct scsi_it_lun *it)
{
	struct scsi_nexus_closing *closing = it->closing;
	struct scsi_lun *lun = it->lun;

	TAILQ_REMOVE(&lun->its, it, link);
	free(it);
	closing_put(closing);
	scsi__lun_put(lun);
}

static void it_closed(void *arg)
{
	it_free(arg);
}

static void it_leave(struct scsi_it_lun *it)
{
	if (it->opened && it->lun->object != NULL) {
		it->opened = false;
		dom_nexus_close(it->lun->object, &it->dom, it_closed, it);
		return;
	}
	it_free(it);
}

static void it_released(struct dom_io *io, int status)
{
	struct scsi_it_lun *it = container_of(io, struct scsi_it_lun, io);

	if (status < 0 && status != -ENOENT)
		log_warn("unit %s: RESERVE of %s not released: %s",
			 it->lun->name, it->dom.initiator_port,
			 err_text(status));
	it_leave(it);
}

/* Of @it's ports, at whatever unit of the object, the one that asked last. */
static struct scsi_it_lun *reserver_of(const struct scsi_it_lun *it)
{
	const struct dom_nexus *a = &it->dom, *b;
	struct scsi_it_lun *other;
	struct scsi_lun *unit;

	SCSI_UNITS_FOREACH (unit, it->lun)
		TAILQ_FOREACH (other, &unit->its, link) {
			b = &other->dom;
			if (other->reserves &&
			    a->target_port == b->target_port &&
			    strcmp(a->initiator_port, b->initiator_port) == 0)
				return other;
		}
	return NULL;
}

void scsi__it_reserves(struct scsi_it_lun *it)
{
	struct scsi_it_lun *before = reserver_of(it);

	if (before != NULL)
		before->reserves = false;
	it->reserves = true;
}

/* Do its ports hold one, as far as dom has told? */
static bool ports_hold(const struct scsi_it_lun *it)
{
	return dom_spc2_holds(dom_reservation(it->lun->object),
			      it->dom.initiator_port, it->dom.target_port);
}

void scsi__it_settle(struct scsi_it_lun *it)
{
	if (it->reserving == 0 && !ports_hold(it))
		it->reserves = false;
}

bool scsi__it_reserved(const struct scsi_it_lun *it)
{
	const struct scsi_it_lun *by;

	if (it->lun->object == NULL || !it->opened)
		return false;
	by = reserver_of(it);
	if (by != NULL)
		return by == it;
	return ports_hold(it);
}

/* If it may hold an SPC-2 reservation, give it up: true, and @cb later. */
static bool it_release(struct scsi_it_lun *it, dom_io_cb cb)
{
	if (!scsi__it_reserved(it))
		return false;
	it->pr.action = DOM_SPC2_RESET;
	it->io.nexus = &it->dom;
	return dom_reserve(it->lun->object, &it->io, &it->pr, cb) == 0;
}

/* Its last command is over: give up its SPC-2 reservation, tell dom. */
static void it_end(struct scsi_it_lun *it)
{
	if (!it_release(it, it_released))
		it_leave(it);
}

void scsi__it_put(struct scsi_it_lun *it)
{
	assert(it->refs > 0);
	if (--it->refs == 0)
		it_end(it);
}

static bool units_fit(struct scsi_nexus *nexus, unsigned number)
{
	unsigned count = MAX(number + 1, nexus->units_count);
	struct scsi_it_lun **units;

	if (count == nexus->units_count)
		return true;
	units = realloc(nexus->units, count * sizeof(*units));
	if (units == NULL)
		return false;
	memset(units + nexus->units_count, 0,
	       (count - nexus->units_count) * sizeof(*units));
	nexus->units = units;
	nexus->units_count = count;
	return true;
}

/* Without memory the unit answers BUSY to this nexus: scsi__it_get(). */
static void it_make(struct scsi_nexus *nexus, struct scsi_lun *lun,
		    enum scsi_ua ua)
{
	struct scsi_it_lun *it;

	if (!units_fit(nexus, lun->number))
		return;
	assert(nexus->units[lun->number] == NULL);
	it = calloc(1, sizeof(*it));
	if (it == NULL)
		return;
	it->lun = lun;
	it->nexus = nexus;
	it->dom = nexus->dom;
	it->refs = 1;
	lun->refs++;
	TAILQ_INSERT_TAIL(&lun->its, it, link);
	nexus->units[lun->number] = it;
	scsi__ua_set(it, ua);
	if (lun->object != NULL) {
		dom_nexus_open(lun->object, &it->dom);
		it->opened = true;
	}
}

struct scsi_it_lun *scsi__it_get(struct scsi_nexus *nexus, struct scsi_lun *lun)
{
	if (scsi__it_find(nexus, lun) == NULL)
		it_make(nexus, lun, UA_POWER_ON);
	return scsi__it_find(nexus, lun);
}

void scsi_nexus_open(struct scsi_target *target, struct scsi_nexus *nexus,
		     bool reinstated)
{
	nexus->target = target;
	nexus->units = NULL;
	nexus->units_count = 0;
	TAILQ_INSERT_TAIL(&target->nexuses, nexus, link);
	for (unsigned i = 0; i < target->luns_size; i++)
		if (target->luns[i] != NULL)
			it_make(nexus, target->luns[i],
				reinstated ? UA_NEXUS_LOSS : UA_POWER_ON);
}

void scsi_nexus_close(struct scsi_nexus *nexus, void (*cb)(void *arg),
		      void *arg)
{
	struct scsi_nexus_closing *closing = closing_begin(nexus, cb, arg);
	struct scsi_it_lun **units = nexus->units;
	unsigned count = nexus->units_count;

	TAILQ_REMOVE(&nexus->target->nexuses, nexus, link);
	nexus->units = NULL;
	nexus->units_count = 0;
	for (unsigned i = 0; i < count; i++) {
		if (units[i] == NULL)
			continue;
		units[i]->nexus = NULL;
		units[i]->closing = closing;
		closing->waiting++;
		scsi__it_put(units[i]);
	}
	free(units);
	closing_put(closing);
}

static void it_gave_up(struct dom_io *io, int status)
{
	struct scsi_it_lun *it = container_of(io, struct scsi_it_lun, io);
	struct scsi_nexus_closing *release = it->release;

	it->release = NULL;
	if (status == 0)
		scsi__it_settle(it);
	scsi__it_put(it); /* which tries again, if it failed */
	closing_put(release);
}

void scsi_nexus_release(struct scsi_nexus *nexus, void (*cb)(void *arg),
			void *arg)
{
	struct scsi_nexus_closing *release = closing_begin(nexus, cb, arg);

	for (unsigned i = 0; i < nexus->units_count; i++) {
		struct scsi_it_lun *it = nexus->units[i];

		if (it == NULL || !it_release(it, it_gave_up))
			continue;
		it->refs++;
		it->release = release;
		release->waiting++;
	}
	closing_put(release);
}

/* ---- a unit and its object ---- */

/* The hash modulo the shards says on which one the object is: not that again. */
struct scsi_units *scsi__units_near(struct scsi_common *common,
				    const struct uuid *object)
{
	return &common->units_by_object[(uuid_hash(object) >> 32) %
					SCSI_BUCKETS];
}

static void unit_insert(struct scsi_common *common, struct scsi_lun *lun)
{
	TAILQ_INSERT_TAIL(&common->units, lun, open_link);
	TAILQ_INSERT_TAIL(scsi__units_near(common, &lun->oid), lun,
			  object_link);
}

static void unit_remove(struct scsi_common *common, struct scsi_lun *lun)
{
	TAILQ_REMOVE(&common->units, lun, open_link);
	TAILQ_REMOVE(scsi__units_near(common, &lun->oid), lun, object_link);
}

static void lun_opened(struct dom_object_open *req, int status);

static void lun_tried(struct scsi_lun *lun)
{
	if (lun->untried)
		lun->target->common->untried--;
	lun->untried = lun->open_again = false;
}

static void lun_open(struct scsi_lun *lun)
{
	int rv;

	if (lun->removed)
		return;
	rv = dom_object_open(lun->target->dom, &lun->open, &lun->oid,
			     lun_opened);
	if (rv == 0) {
		lun->refs++;
	} else {
		lun_tried(lun);
		env_timer_start(lun->target->env, &lun->open_timer,
				OPEN_RETRY_NS);
	}
}

void scsi_units_retry(struct scsi_target *target)
{
	for (unsigned i = 0; i < target->luns_size; i++) {
		struct scsi_lun *lun = target->luns[i];

		if (lun == NULL || lun->object != NULL)
			continue;
		if (!lun->untried)
			target->common->untried++;
		lun->untried = true;
		lun->open_again = !env_timer_active(&lun->open_timer);
		if (lun->open_again)
			continue; /* what is under way knows of nothing new */
		env_timer_stop(target->env, &lun->open_timer);
		lun_open(lun);
	}
}

static void open_again(struct env_timer *timer)
{
	lun_open(container_of(timer, struct scsi_lun, open_timer));
}

static void take_attention(struct scsi_it_lun *it)
{
	unsigned bits = dom_nexus_attention(it->lun->object, &it->dom);

	if (bits & DOM_UA_RESERVATION_PREEMPTED)
		scsi__ua_set(it, UA_PR_PREEMPTED);
	if (bits & DOM_UA_RESERVATION_RELEASED)
		scsi__ua_set(it, UA_PR_RELEASED);
	if (bits & DOM_UA_REGISTRATION_PREEMPTED)
		scsi__ua_set(it, UA_PR_UNREGISTERED);
}

static void lun_event(struct dom_watch *watch, enum dom_event event)
{
	struct scsi_lun *lun = container_of(watch, struct scsi_lun, watch);
	struct scsi_it_lun *it;

	switch (event) {
	case DOM_RESIZED:
		scsi__ua_set_all(lun, UA_CAPACITY, NULL);
		break;
	case DOM_DELETED:
		lun->deleted = true;
		scsi__ua_set_all(lun, UA_LUNS, NULL);
		break;
	case DOM_RESERVATION:
		TAILQ_FOREACH (it, &lun->its, link)
			if (it->opened) {
				take_attention(it);
				scsi__it_settle(it);
			}
		break;
	case DOM_LOW_SPACE:
		scsi__ua_set_all(lun, UA_THIN, NULL);
		break;
	case DOM_CONGESTION:
		break; /* sessions ask: scsi_lun_congestion() */
	}
}

/* Mode pages are shared with the units that show the object already. */
static void take_modes(struct scsi_lun *lun)
{
	const struct scsi_lun *unit;

	SCSI_UNITS_FOREACH (unit, lun) {
		if (unit->removed)
			continue;
		lun->d_sense = unit->d_sense;
		lun->swp = unit->swp;
		lun->tas = unit->tas;
		return;
	}
}

static void lun_opened(struct dom_object_open *req, int status)
{
	struct scsi_lun *lun = container_of(req, struct scsi_lun, open);
	struct scsi_target *target = lun->target;
	struct scsi_it_lun *it;

	target->busy++;
	if (status == 0) {
		lun->object = req->object;
		/* Before the first command: it must find the unit closed. */
		status = scsi__sanitize_opened(lun);
		if (status < 0) {
			dom_object_close(lun->object);
			lun->object = NULL;
		}
	}
	if (status == 0) {
		take_modes(lun);
		unit_insert(target->common, lun);
		lun->watch.cb = lun_event;
		dom_object_watch(lun->object, &lun->watch);
		TAILQ_FOREACH (it, &lun->its, link) {
			dom_nexus_open(lun->object, &it->dom);
			it->opened = true;
		}
	} else {
		log_debug("unit %s: not open: %s", lun->name, err_text(status));
		if (!lun->removed && !lun->open_again)
			env_timer_start(target->env, &lun->open_timer,
					OPEN_RETRY_NS);
	}
	if (status < 0 && lun->open_again && !lun->removed) {
		lun->open_again = false;
		lun_open(lun);
	} else {
		lun_tried(lun);
	}
	scsi__lun_put(lun);
	target->busy--;
	scsi__target_check(target);
}

void scsi__lun_put(struct scsi_lun *lun)
{
	struct scsi_target *target = lun->target;

	assert(lun->refs > 0);
	if (--lun->refs > 0)
		return;
	assert(lun->removed && TAILQ_EMPTY(&lun->its));
	assert(TAILQ_EMPTY(&lun->tasks));
	if (lun->object != NULL) {
		scsi__sanitize_closed(lun);
		unit_remove(target->common, lun);
		dom_object_unwatch(lun->object, &lun->watch);
		dom_object_close(lun->object);
	}
	TAILQ_REMOVE(&target->all, lun, link);
	scsi_usage_put(lun->usage);
	free(lun);
	scsi__target_check(target);
}

/* REPORT LUNS has something new to say, on every unit of every nexus. */
static void luns_changed(struct scsi_target *target)
{
	for (unsigned i = 0; i < target->luns_size; i++)
		if (target->luns[i] != NULL)
			scsi__ua_set_all(target->luns[i], UA_LUNS, NULL);
}

static bool luns_fit(struct scsi_target *target, unsigned number)
{
	unsigned size = MAX(number + 1, target->luns_size);
	struct scsi_lun **luns;

	if (size == target->luns_size)
		return true;
	luns = realloc(target->luns, size * sizeof(*luns));
	if (luns == NULL)
		return false;
	memset(luns + target->luns_size, 0,
	       (size - target->luns_size) * sizeof(*luns));
	target->luns = luns;
	target->luns_size = size;
	return true;
}

/* The same unit with other words about it. */
static void lun_change(struct scsi_lun *lun, const struct iscsi_lun_conf *conf)
{
	snprintf(lun->name, sizeof(lun->name), "%s",
		 conf->name != NULL ? conf->name : "");
	if (lun->read_only != conf->read_only) {
		lun->read_only = conf->read_only;
		scsi__ua_set_all(lun, UA_MODE_CHANGED, NULL);
	}
}

int scsi_lun_set(struct scsi_target *target, const struct iscsi_lun_conf *conf,
		 struct scsi_usage *usage)
{
	struct scsi_nexus *nexus;
	struct scsi_lun *lun;

	if (conf->lun > ISCSI_LUN_MAX || target->closing)
		return -EINVAL;
	if (conf->block_bytes != 512 && conf->block_bytes != 4096)
		return -EINVAL;
	if (!luns_fit(target, conf->lun))
		return -ENOMEM;
	lun = target->luns[conf->lun];
	if (lun != NULL && uuid_equal(&lun->oid, &conf->object) &&
	    lun->block_bytes == conf->block_bytes) {
		lun_change(lun, conf);
		return 0;
	}
	lun = calloc(1, sizeof(*lun));
	if (lun == NULL)
		return -ENOMEM;
	if (target->luns[conf->lun] != NULL)
		scsi_lun_unset(target, conf->lun);

	luns_changed(target);
	lun->target = target;
	lun->number = conf->lun;
	lun->oid = conf->object;
	snprintf(lun->name, sizeof(lun->name), "%s",
		 conf->name != NULL ? conf->name : "");
	lun->block_bytes = conf->block_bytes;
	lun->read_only = conf->read_only;
	lun->usage = scsi_usage_get(usage);
	lun->tas = true;
	lun->refs = 1;
	lun->opening_since_ns = env_now(target->env);
	lun->open_timer.cb = open_again;
	TAILQ_INIT(&lun->tasks);
	TAILQ_INIT(&lun->its);
	TAILQ_INSERT_TAIL(&target->all, lun, link);
	target->luns[lun->number] = lun;
	target->luns_count++;
	TAILQ_FOREACH (nexus, &target->nexuses, link)
		it_make(nexus, lun, UA_POWER_ON);
	/*
	 * Who is logged in may take it for the unit that had its number before,
	 * and write there what was meant for that one.
	 */
	scsi__ua_set_all(lun, UA_INQUIRY, NULL);
	scsi__ua_set_all(lun, UA_LUNS, NULL);
	lun_open(lun);
	return 0;
}

/*
 * @it's number goes.  Its nexus still has the disk if that has another one there:
 * what it reserved stays (SPC-2 5.5.1).
 */
static void it_hand_over(struct scsi_nexus *nexus, struct scsi_it_lun *it)
{
	struct scsi_it_lun *other;

	if (!scsi__it_reserved(it))
		return;
	for (unsigned i = 0; i < nexus->units_count; i++) {
		other = nexus->units[i];
		if (other != NULL && other->opened &&
		    scsi__same_object(other->lun, it->lun)) {
			scsi__it_reserves(other);
			/* It does not hear of their end: for good. */
			other->reserving += it->reserving;
			return;
		}
	}
}

void scsi_lun_unset(struct scsi_target *target, unsigned number)
{
	struct scsi_lun *lun;
	struct scsi_nexus *nexus;

	if (number >= target->luns_size || target->luns[number] == NULL)
		return;
	lun = target->luns[number];
	target->luns[number] = NULL;
	target->luns_count--;
	lun->removed = true;
	env_timer_stop(target->env, &lun->open_timer);
	scsi__sanitize_stop(lun);
	target->busy++;
	TAILQ_FOREACH (nexus, &target->nexuses, link) {
		struct scsi_it_lun *it = scsi__it_find(nexus, lun);

		if (it == NULL)
			continue;
		nexus->units[number] = NULL;
		it->nexus = NULL;
		it_hand_over(nexus, it);
		scsi__it_put(it);
	}
	luns_changed(target);
	scsi__lun_put(lun);
	target->busy--;
	scsi__target_check(target);
}
