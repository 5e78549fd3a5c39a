/*
 * reservation: persistent reservations (SPC-4 5.13, 6.15, 6.16) and those of
 * SPC-2 as a pure state machine: state, who asks, what is asked -> new state and
 * what each other nexus is owed.  Storing it and telling people is owner_pr.c's.
 *
 * A registration is of an I_T nexus (initiator port, relative target port), or
 * of an initiator port on every target port (ALL_TG_PT).  All registrations
 * survive a restart: in a cluster a failover must not look like a power loss,
 * so APTPL is kept as told and changes nothing.
 */
#include "dom/dom_int.h"

#include <stdlib.h>

/* An index that is nobody's. */
#define NOBODY UINT32_MAX

static bool all_registrants(uint8_t type)
{
	return type == 7 || type == 8;
}

static bool registrants_only(uint8_t type)
{
	return type == 5 || type == 6;
}

static bool type_valid(uint8_t type)
{
	return type == 1 || type == 3 || (type >= 5 && type <= 8);
}

/* Every change works on a copy with room for all there may be. */
static int room_make(struct dom_reservation *res)
{
	res->registrations =
		calloc(DOM_REGISTRATIONS_MAX, sizeof(*res->registrations));
	return res->registrations == NULL ? -ENOMEM : 0;
}

void dom__reservation_init(struct dom_reservation *res)
{
	memset(res, 0, sizeof(*res));
}

void dom__reservation_fini(struct dom_reservation *res)
{
	free(res->registrations);
	memset(res, 0, sizeof(*res));
}

int dom__reservation_copy(struct dom_reservation *to,
			  const struct dom_reservation *from)
{
	*to = *from;
	if (room_make(to) < 0)
		return -ENOMEM;
	if (from->registrations_count > 0)
		memcpy(to->registrations, from->registrations,
		       from->registrations_count *
			       sizeof(*from->registrations));
	return 0;
}

/* ---- looking ---- */

static bool port_equal(const struct dom_registration *reg, const char *port,
		       uint16_t target_port)
{
	return strcmp(reg->initiator_port, port) == 0 &&
	       (reg->all_target_ports || reg->target_port == target_port);
}

static unsigned find(const struct dom_reservation *res, const char *port,
		     uint16_t target_port)
{
	for (unsigned i = 0; i < res->registrations_count; i++) {
		if (port_equal(&res->registrations[i], port, target_port))
			return i;
	}
	return NOBODY;
}

static bool holds(const struct dom_reservation *res, unsigned reg)
{
	return res->held && reg != NOBODY &&
	       (all_registrants(res->type) || res->holder == reg);
}

static bool spc2_held(const struct dom_reservation *res)
{
	return res->spc2_holder[0] != '\0';
}

static bool spc2_mine(const struct dom_reservation *res,
		      const struct dom__pr_who *who)
{
	return dom_spc2_holds(res, who->initiator_port, who->target_port);
}

bool dom__reservation_lets(const struct dom_reservation *res,
			   const struct dom__pr_who *who,
			   enum dom_access access)
{
	unsigned reg;

	if (access == DOM_ACCESS_NONE)
		return true;
	if (spc2_held(res))
		return spc2_mine(res, who);
	if (!res->held)
		return true;
	reg = find(res, who->initiator_port, who->target_port);
	if (holds(res, reg))
		return true;
	if (registrants_only(res->type) && reg != NOBODY)
		return true;
	/* Write exclusive of any kind: everybody may read. */
	return access == DOM_ACCESS_READ &&
	       (res->type == 1 || res->type == 5 || res->type == 7);
}

/* ---- changing ---- */

static void owe(struct dom__pr_effects *effects,
		const struct dom_registration *reg, unsigned attention,
		bool abort)
{
	struct dom__pr_effect *e = &effects->items[effects->count++];

	memcpy(e->initiator_port, reg->initiator_port,
	       sizeof(e->initiator_port));
	e->target_port = reg->target_port;
	e->all_target_ports = reg->all_target_ports;
	e->attention = attention;
	e->abort = abort;
}

static void owe_all_but(struct dom__pr_effects *effects,
			const struct dom_reservation *res, unsigned but,
			unsigned attention)
{
	for (unsigned i = 0; i < res->registrations_count; i++) {
		if (i != but)
			owe(effects, &res->registrations[i], attention, false);
	}
}

/* Take @at out.  Its reservation, if it held one alone, ends with it. */
static void drop(struct dom_reservation *res, unsigned at)
{
	if (res->held && !all_registrants(res->type)) {
		if (res->holder == at)
			res->held = false;
		else if (res->holder > at)
			res->holder--;
	}
	res->registrations_count--;
	memmove(&res->registrations[at], &res->registrations[at + 1],
		(res->registrations_count - at) * sizeof(*res->registrations));
	if (res->held && all_registrants(res->type)) {
		res->holder = 0;
		res->held = res->registrations_count > 0;
	}
}

static int add(struct dom_reservation *res, const char *port,
	       uint16_t target_port, uint64_t key, bool all)
{
	struct dom_registration *reg;

	if (res->registrations_count == DOM_REGISTRATIONS_MAX)
		return -ENOMEM;
	if (port[0] == '\0' || strlen(port) >= sizeof(reg->initiator_port))
		return -EINVAL;
	reg = &res->registrations[res->registrations_count++];
	memset(reg, 0, sizeof(*reg));
	strcpy(reg->initiator_port, port);
	reg->target_port = target_port;
	reg->key = key;
	reg->all_target_ports = all;
	return 0;
}

/*
 * ALL_TG_PT: one registration stands for every target port; those of single
 * ports melt into it, with the reservation if one of them held it.
 */
static void spread(struct dom_reservation *res, unsigned at)
{
	char port[256];

	memcpy(port, res->registrations[at].initiator_port, sizeof(port));
	res->registrations[at].all_target_ports = true;
	for (unsigned i = res->registrations_count; i-- > 0;) {
		bool held = res->held && res->holder == i;

		if (i == at ||
		    strcmp(res->registrations[i].initiator_port, port) != 0)
			continue;
		if (held && !all_registrants(res->type))
			res->holder = at;
		drop(res, i);
		if (i < at)
			at--;
	}
}

/* What the last REGISTER says of power losses holds, this one too (5.13.5). */
static int unregister(struct dom_reservation *res, const struct dom_pr *pr,
		      unsigned reg, struct dom__pr_effects *effects)
{
	if (holds(res, reg) && registrants_only(res->type))
		owe_all_but(effects, res, reg, DOM_UA_RESERVATION_RELEASED);
	drop(res, reg);
	res->aptpl = pr->aptpl;
	res->generation++;
	return 0;
}

/* REGISTER and REGISTER AND IGNORE EXISTING KEY (SPC-4 5.13.7, table 41). */
static int do_register(struct dom_reservation *res,
		       const struct dom__pr_who *who, const struct dom_pr *pr,
		       unsigned reg, bool *changed, unsigned *bad,
		       struct dom__pr_effects *effects)
{
	uint64_t own = reg == NOBODY ? 0 : res->registrations[reg].key;
	int rv;

	if (pr->action == DOM_PR_REGISTER && pr->key != own)
		return -EPERM;
	/* Other ports may only be registered along with one's own first. */
	if (pr->spec_i_pt && (reg != NOBODY || pr->action != DOM_PR_REGISTER)) {
		*bad = 20;
		return -EINVAL;
	}
	if (pr->service_action_key == 0) {
		*changed = reg != NOBODY;
		return reg == NOBODY ? 0 : unregister(res, pr, reg, effects);
	}
	if (reg == NOBODY) {
		rv = add(res, who->initiator_port, who->target_port,
			 pr->service_action_key, pr->all_target_ports);
		if (rv < 0)
			return rv;
		reg = res->registrations_count - 1;
	} else {
		res->registrations[reg].key = pr->service_action_key;
	}
	if (pr->all_target_ports)
		spread(res, reg);
	for (unsigned i = 0; pr->spec_i_pt && i < pr->initiator_ports_count;
	     i++) {
		/* An initiator's name stands for all its ports, this too. */
		if (strcmp(pr->initiator_ports[i], who->initiator_port) == 0)
			continue;
		if (find(res, pr->initiator_ports[i], who->target_port) !=
		    NOBODY) {
			*bad = 28;
			return -EINVAL;
		}
		rv = add(res, pr->initiator_ports[i], who->target_port,
			 pr->service_action_key, pr->all_target_ports);
		if (rv == -EINVAL)
			*bad = 28;
		if (rv < 0)
			return rv;
		if (pr->all_target_ports)
			spread(res, res->registrations_count - 1);
	}
	res->aptpl = pr->aptpl;
	res->generation++;
	return 0;
}

static int do_reserve(struct dom_reservation *res, const struct dom_pr *pr,
		      unsigned reg, bool *changed)
{
	if (res->held) {
		*changed = false;
		return holds(res, reg) && res->type == pr->type ? 0 : -EPERM;
	}
	res->held = true;
	res->type = pr->type;
	res->holder = reg;
	return 0;
}

static int do_release(struct dom_reservation *res, const struct dom_pr *pr,
		      unsigned reg, bool *changed, unsigned *bad,
		      struct dom__pr_effects *effects)
{
	if (!holds(res, reg)) {
		*changed = false;
		return 0;
	}
	if (res->type != pr->type) {
		*bad = UINT32_MAX; /* invalid release, 5/26/04 */
		return -EINVAL;
	}
	if (registrants_only(res->type) || all_registrants(res->type))
		owe_all_but(effects, res, reg, DOM_UA_RESERVATION_RELEASED);
	res->held = false;
	return 0;
}

/*
 * PREEMPT (SPC-4 5.13.11): if the victim holds the reservation it goes to the
 * preemptor with the new type, and the preemptor's own registration stays;
 * else registrations with the key are removed, and nothing more.
 */
static int do_preempt(struct dom_reservation *res,
		      const struct dom__pr_who *who, const struct dom_pr *pr,
		      unsigned reg, unsigned *bad,
		      struct dom__pr_effects *effects)
{
	bool abort = pr->action == DOM_PR_PREEMPT_AND_ABORT;
	bool all = res->held && all_registrants(res->type);
	uint64_t victim = pr->service_action_key;
	bool takes = (all && victim == 0) ||
		     (res->held && !all &&
		      res->registrations[res->holder].key == victim);
	uint8_t old_type = res->type;
	bool found = victim == 0;

	if (victim == 0 && !all) {
		*bad = 8;
		return -EINVAL;
	}
	if (takes && !type_valid(pr->type)) {
		*bad = DOM_PR_OF_CDB;
		return -EINVAL;
	}
	for (unsigned i = 0; i < res->registrations_count; i++)
		found = found || res->registrations[i].key == victim;
	if (!found)
		return -EPERM;
	if (takes)
		res->held = false;
	for (unsigned i = res->registrations_count; i-- > 0;) {
		const struct dom_registration *r = &res->registrations[i];

		if (victim != 0 && r->key != victim)
			continue;
		if (i == reg) {
			if (!takes)
				drop(res, i);
			continue;
		}
		owe(effects, r, DOM_UA_REGISTRATION_PREEMPTED, abort);
		drop(res, i);
		if (reg != NOBODY && i < reg)
			reg--;
	}
	if (takes) {
		reg = find(res, who->initiator_port, who->target_port);
		if (old_type != pr->type)
			owe_all_but(effects, res, reg,
				    DOM_UA_RESERVATION_RELEASED);
		res->held = true;
		res->type = pr->type;
		res->holder = reg;
	}
	res->generation++;
	return 0;
}

/* REGISTER AND MOVE (SPC-4 5.13.8). */
static int do_move(struct dom_reservation *res, const struct dom__pr_who *who,
		   const struct dom_pr *pr, unsigned reg, unsigned *bad)
{
	const char *to;
	unsigned dest;
	int rv;

	if (!res->held) {
		*bad = DOM_PR_OF_CDB;
		return -EINVAL;
	}
	if (!holds(res, reg) || all_registrants(res->type))
		return -EPERM;
	if (pr->service_action_key == 0) {
		*bad = 8;
		return -EINVAL;
	}
	if (pr->initiator_ports_count != 1) {
		*bad = 20;
		return -EINVAL;
	}
	to = pr->initiator_ports[0];
	if (strcmp(to, who->initiator_port) == 0) { /* by whatever port */
		*bad = 24;
		return -EINVAL;
	}
	dest = find(res, to, pr->move_target_port);
	if (dest == NOBODY) {
		rv = add(res, to, pr->move_target_port, pr->service_action_key,
			 false);
		if (rv < 0) {
			*bad = 24;
			return rv;
		}
		dest = res->registrations_count - 1;
	} else {
		res->registrations[dest].key = pr->service_action_key;
	}
	res->holder = dest;
	res->aptpl = pr->aptpl;
	if (pr->unregister)
		drop(res, reg);
	res->generation++;
	return 0;
}

/* SPC-2 RESERVE and RELEASE; with registrations they conflict (CRH = 0). */
static int do_spc2(struct dom_reservation *res, const struct dom__pr_who *who,
		   const struct dom_pr *pr, bool *changed)
{
	bool mine = spc2_mine(res, who);

	if (res->registrations_count > 0)
		return -EPERM;
	if (pr->action == DOM_SPC2_RESERVE) {
		if (spc2_held(res) && !mine)
			return -EPERM;
		*changed = !spc2_held(res);
		if (strlen(who->initiator_port) >= sizeof(res->spc2_holder))
			return -EINVAL;
		strcpy(res->spc2_holder, who->initiator_port);
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): still in @res */
		res->spc2_target_port = who->target_port;
		return 0;
	}
	*changed = mine;
	if (*changed) {
		res->spc2_holder[0] = '\0';
		res->spc2_target_port = 0;
	}
	return 0;
}

static int apply(struct dom_reservation *res, const struct dom__pr_who *who,
		 const struct dom_pr *pr, bool *changed, unsigned *bad,
		 struct dom__pr_effects *effects)
{
	unsigned reg;

	if (who->initiator_port == NULL)
		return -EINVAL;
	if (pr->action == DOM_SPC2_RESERVE || pr->action == DOM_SPC2_RELEASE)
		return do_spc2(res, who, pr, changed);
	if (spc2_held(res))
		return -EPERM;
	reg = find(res, who->initiator_port, who->target_port);
	if (pr->action == DOM_PR_REGISTER ||
	    pr->action == DOM_PR_REGISTER_AND_IGNORE)
		return do_register(res, who, pr, reg, changed, bad, effects);
	if (reg == NOBODY || res->registrations[reg].key != pr->key)
		return -EPERM;
	switch (pr->action) {
	case DOM_PR_RESERVE:
		if (!type_valid(pr->type)) {
			*bad = DOM_PR_OF_CDB;
			return -EINVAL;
		}
		return do_reserve(res, pr, reg, changed);
	case DOM_PR_RELEASE:
		return do_release(res, pr, reg, changed, bad, effects);
	case DOM_PR_CLEAR:
		owe_all_but(effects, res, reg, DOM_UA_RESERVATION_PREEMPTED);
		res->registrations_count = 0;
		res->held = false;
		res->generation++;
		return 0;
	case DOM_PR_PREEMPT:
	case DOM_PR_PREEMPT_AND_ABORT:
		return do_preempt(res, who, pr, reg, bad, effects);
	case DOM_PR_REGISTER_AND_MOVE:
		return do_move(res, who, pr, reg, bad);
	default:
		return -EINVAL;
	}
}

int dom__reservation_apply(struct dom_reservation *res,
			   const struct dom__pr_who *who,
			   const struct dom_pr *pr, bool *changed,
			   unsigned *bad_byte, struct dom__pr_effects *effects)
{
	struct dom_reservation next;
	int rv;

	effects->count = 0;
	*bad_byte = 0;
	*changed = true;
	if (dom__reservation_copy(&next, res) < 0)
		return -ENOMEM;
	rv = apply(&next, who, pr, changed, bad_byte, effects);
	if (!next.held) {
		next.holder = 0;
		next.type = 0;
	}
	if (rv == 0 && *changed) {
		dom__reservation_fini(res);
		*res = next;
		return 0;
	}
	*changed = false;
	if (rv < 0)
		effects->count = 0;
	dom__reservation_fini(&next);
	return rv;
}

/* ---- the directory's form ---- */

int dom__reservation_unpack(struct dom_reservation *res,
			    const Directory__Reservation *msg)
{
	struct dom_reservation next = { 0 };

	if (msg->n_registrations > DOM_REGISTRATIONS_MAX ||
	    strlen(msg->spc2_holder) >= sizeof(next.spc2_holder))
		return -EUCLEAN;
	if (room_make(&next) < 0)
		return -ENOMEM;
	next.generation = msg->generation;
	for (size_t i = 0; i < msg->n_registrations; i++) {
		const Directory__Registration *m = msg->registrations[i];

		if (add(&next, m->initiator_port, (uint16_t)m->target_port,
			m->key, m->all_target_ports) < 0)
			goto bad;
	}
	next.held = msg->held;
	if (next.held) {
		next.holder = msg->holder;
		next.type = (uint8_t)msg->type;
		if (!type_valid(next.type) ||
		    next.holder >= next.registrations_count)
			goto bad;
	}
	next.aptpl = msg->aptpl;
	strcpy(next.spc2_holder, msg->spc2_holder);
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): goes to @res */
	next.spc2_target_port = (uint16_t)msg->spc2_target_port;
	dom__reservation_fini(res);
	*res = next;
	return 0;

bad:
	dom__reservation_fini(&next);
	return -EUCLEAN;
}

int dom__reservation_pack(const struct dom_reservation *res,
			  const struct uuid *oid, bool swp,
			  Directory__Reservation *msg)
{
	unsigned n = res->registrations_count;
	Directory__Registration *items;

	directory__reservation__init(msg);
	msg->oid.data = (uint8_t *)oid->b;
	msg->oid.len = sizeof(oid->b);
	msg->generation = res->generation;
	msg->held = res->held;
	msg->holder = res->holder;
	msg->type = res->type;
	msg->aptpl = res->aptpl;
	msg->spc2_holder = (char *)res->spc2_holder;
	msg->spc2_target_port = res->spc2_target_port;
	msg->swp = swp;
	if (n == 0)
		return 0;
	msg->registrations = calloc(n, sizeof(*msg->registrations));
	items = calloc(n, sizeof(*items));
	if (msg->registrations == NULL || items == NULL) {
		free(msg->registrations);
		free(items);
		msg->registrations = NULL;
		return -ENOMEM;
	}
	for (unsigned i = 0; i < n; i++) {
		const struct dom_registration *r = &res->registrations[i];

		directory__registration__init(&items[i]);
		items[i].initiator_port = (char *)r->initiator_port;
		items[i].target_port = r->target_port;
		items[i].key = r->key;
		items[i].all_target_ports = r->all_target_ports;
		msg->registrations[i] = &items[i];
	}
	msg->n_registrations = n;
	return 0;
}

void dom__reservation_pack_free(Directory__Reservation *msg)
{
	if (msg->n_registrations > 0)
		free(msg->registrations[0]);
	free(msg->registrations);
	msg->registrations = NULL;
	msg->n_registrations = 0;
}
