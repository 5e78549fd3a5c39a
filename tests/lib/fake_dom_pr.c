/* fake_dom_pr: reservations of one volume (SPC-4 5.13, 6.16; SPC-2). */
#include "tests/lib/fake_dom_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void fake_pr_init(struct fake_pr *pr)
{
	memset(pr, 0, sizeof(*pr));
	TAILQ_INIT(&pr->logins);
}

/* Whoever came has gone: each nexus was closed. */
void fake_pr_fini(struct fake_pr *pr)
{
	assert(TAILQ_EMPTY(&pr->logins));
}

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

static bool same(const char *a, uint16_t ap, const char *b, uint16_t bp)
{
	return ap == bp && strcmp(a, b) == 0;
}

static int find(const struct fake_pr *pr, const char *port, uint16_t tp)
{
	for (unsigned i = 0; i < pr->count; i++)
		if (same(pr->regs[i].initiator_port, pr->regs[i].target_port,
			 port, tp) ||
		    (pr->regs[i].all_target_ports &&
		     strcmp(pr->regs[i].initiator_port, port) == 0))
			return (int)i;
	return -1;
}

static bool holds(const struct fake_pr *pr, int reg)
{
	return pr->held && reg >= 0 &&
	       (all_registrants(pr->type) || (unsigned)reg == pr->holder);
}

static bool spc2_conflict(const struct fake_pr *pr,
			  const struct dom_nexus *nexus)
{
	return pr->spc2_holder[0] != '\0' &&
	       !same(pr->spc2_holder, pr->spc2_target_port,
		     nexus->initiator_port, nexus->target_port);
}

bool fake_pr_allowed(const struct fake_pr *pr, const struct dom_nexus *nexus,
		     enum dom_access access)
{
	int reg;

	if (nexus == NULL || access == DOM_ACCESS_NONE)
		return true;
	if (spc2_conflict(pr, nexus))
		return false;
	if (!pr->held)
		return true;
	reg = find(pr, nexus->initiator_port, nexus->target_port);
	if (holds(pr, reg))
		return true;
	if (reg >= 0 && pr->type >= 5)
		return true;
	/* Write exclusive types let everyone read. */
	return access == DOM_ACCESS_READ && (pr->type & 1) != 0 &&
	       pr->type != 3;
}

/* Tell every login of @port but the one that asked. */
static void attention(struct fake_pr *pr, const struct dom_registration *reg,
		      const struct dom_nexus *nexus, unsigned bits)
{
	struct fake_login *login;

	TAILQ_FOREACH (login, &pr->logins, link) {
		if (strcmp(login->initiator_port, reg->initiator_port) != 0 ||
		    (login->target_port != reg->target_port &&
		     !reg->all_target_ports))
			continue;
		if (same(login->initiator_port, login->target_port,
			 nexus->initiator_port, nexus->target_port))
			continue;
		login->attention |= bits;
	}
}

static void attention_all(struct fake_pr *pr, const struct dom_nexus *nexus,
			  unsigned bits)
{
	for (unsigned i = 0; i < pr->count; i++)
		attention(pr, &pr->regs[i], nexus, bits);
}

static void drop(struct fake_pr *pr, unsigned i)
{
	bool held_by =
		pr->held && !all_registrants(pr->type) && pr->holder == i;

	memmove(&pr->regs[i], &pr->regs[i + 1],
		(pr->count - i - 1) * sizeof(pr->regs[0]));
	pr->count--;
	if (held_by)
		pr->held = false;
	else if (pr->held && pr->holder > i)
		pr->holder--;
	if (pr->held && all_registrants(pr->type) && pr->count == 0)
		pr->held = false;
}

static int add(struct fake_pr *pr, const char *port, uint16_t tp, uint64_t key,
	       bool all)
{
	struct dom_registration *reg;
	int at = find(pr, port, tp);

	if (at < 0) {
		if (pr->count == DOM_REGISTRATIONS_MAX)
			return -ENOMEM;
		at = (int)pr->count++;
	}
	reg = &pr->regs[at];
	memset(reg, 0, sizeof(*reg));
	strncpy(reg->initiator_port, port, sizeof(reg->initiator_port) - 1);
	reg->target_port = tp;
	reg->key = key;
	reg->all_target_ports = all;
	return at;
}

static bool any_registered(const struct fake_pr *pr,
			   const struct dom_nexus *nexus,
			   const struct dom_pr *out)
{
	for (unsigned i = 0; i < out->initiator_ports_count; i++) {
		const char *port = out->initiator_ports[i];

		if (find(pr, port, nexus->target_port) >= 0)
			return true;
		for (unsigned j = 0; j < i; j++) /* or by then would be */
			if (strcmp(out->initiator_ports[j], port) == 0)
				return true;
	}
	return false;
}

static int pr_register(struct fake_pr *pr, const struct dom_nexus *nexus,
		       const struct dom_pr *out, int reg, uint64_t *bad)
{
	uint64_t own = reg >= 0 ? pr->regs[reg].key : 0;
	int rv;

	if (out->action == DOM_PR_REGISTER && out->key != own)
		return -EPERM;
	if (reg < 0 && out->service_action_key == 0)
		return 0;
	if (out->service_action_key == 0) {
		bool told = holds(pr, reg) && registrants_only(pr->type);

		if (told)
			attention_all(pr, nexus, DOM_UA_RESERVATION_RELEASED);
		drop(pr, (unsigned)reg);
		pr->generation++;
		return 0;
	}
	if (out->spec_i_pt && any_registered(pr, nexus, out)) {
		*bad = 28;
		return -EINVAL;
	}
	if (pr->count + 1 + out->initiator_ports_count > DOM_REGISTRATIONS_MAX)
		return -ENOMEM;
	rv = add(pr, nexus->initiator_port, nexus->target_port,
		 out->service_action_key, out->all_target_ports);
	if (rv < 0)
		return rv;
	for (unsigned i = 0; out->spec_i_pt && i < out->initiator_ports_count;
	     i++)
		add(pr, out->initiator_ports[i], nexus->target_port,
		    out->service_action_key, out->all_target_ports);
	pr->aptpl = out->aptpl;
	pr->generation++;
	return 0;
}

static int pr_reserve(struct fake_pr *pr, const struct dom_pr *out, int reg)
{
	if (pr->held)
		return holds(pr, reg) && pr->type == out->type ? 0 : -EPERM;
	pr->held = true;
	pr->type = out->type;
	pr->holder = (unsigned)reg;
	return 0;
}

static int pr_release(struct fake_pr *pr, const struct dom_nexus *nexus,
		      const struct dom_pr *out, int reg, uint64_t *bad)
{
	if (!pr->held || !holds(pr, reg))
		return 0;
	if (pr->type != out->type) {
		*bad = UINT64_MAX;
		return -EINVAL;
	}
	if (pr->type >= 5)
		attention_all(pr, nexus, DOM_UA_RESERVATION_RELEASED);
	pr->held = false;
	return 0;
}

static int pr_preempt(struct fake_pr *pr, const struct dom_nexus *nexus,
		      const struct dom_pr *out, uint64_t *bad)
{
	bool all = pr->held && all_registrants(pr->type);
	uint64_t victim = out->service_action_key;
	bool takes = pr->held && !all && pr->regs[pr->holder].key == victim;
	uint8_t old_type = pr->type;
	bool found = false;
	int reg;

	if (victim == 0 && !all) {
		*bad = 8;
		return -EINVAL;
	}
	if (all && victim == 0)
		takes = true;
	if (takes && !type_valid(out->type)) {
		*bad = DOM_PR_OF_CDB;
		return -EINVAL;
	}
	for (unsigned i = 0; i < pr->count; i++)
		found = found || pr->regs[i].key == victim;
	if (!found && victim != 0)
		return -EPERM;
	if (takes)
		pr->held = false;
	for (unsigned i = pr->count; i-- > 0;) {
		bool mine;

		mine = find(pr, nexus->initiator_port, nexus->target_port) ==
		       (int)i;
		if (mine || (victim != 0 && pr->regs[i].key != victim))
			continue;
		attention(pr, &pr->regs[i], nexus,
			  DOM_UA_REGISTRATION_PREEMPTED);
		drop(pr, i);
	}
	if (takes) {
		reg = find(pr, nexus->initiator_port, nexus->target_port);
		pr->held = true;
		pr->type = out->type;
		pr->holder = (unsigned)reg;
		if (old_type != out->type)
			attention_all(pr, nexus, DOM_UA_RESERVATION_RELEASED);
	}
	pr->generation++;
	return 0;
}

static int pr_move(struct fake_pr *pr, const struct dom_nexus *nexus,
		   const struct dom_pr *out, int reg, uint64_t *bad)
{
	const char *to = out->initiator_ports[0];
	int at;

	if (!pr->held) {
		*bad = DOM_PR_OF_CDB;
		return -EINVAL;
	}
	if (all_registrants(pr->type) || !holds(pr, reg))
		return -EPERM;
	if (out->service_action_key == 0) {
		*bad = 8;
		return -EINVAL;
	}
	if (strcmp(to, nexus->initiator_port) == 0) {
		*bad = 24;
		return -EINVAL;
	}
	at = add(pr, to, out->move_target_port, out->service_action_key, false);
	if (at < 0)
		return at;
	pr->holder = (unsigned)at;
	pr->aptpl = out->aptpl;
	if (out->unregister)
		drop(pr, (unsigned)reg);
	pr->generation++;
	return 0;
}

static int spc2(struct fake_pr *pr, const struct dom_nexus *nexus,
		const struct dom_pr *out)
{
	bool other = nexus != NULL && spc2_conflict(pr, nexus);

	switch (out->action) {
	case DOM_SPC2_RESERVE:
		if (other || pr->count > 0)
			return -EPERM;
		if (pr->late) {
			pr->coming = *nexus;
			return -ETIMEDOUT;
		}
		strcpy(pr->spc2_holder, nexus->initiator_port);
		pr->spc2_target_port = nexus->target_port;
		return 0;
	case DOM_SPC2_RELEASE:
		if (pr->count > 0)
			return -EPERM;
		break;
	default:
		if (nexus == NULL ||
		    same(pr->coming.initiator_port, pr->coming.target_port,
			 nexus->initiator_port, nexus->target_port))
			pr->coming.initiator_port[0] = '\0';
		break;
	}
	if (!other)
		pr->spc2_holder[0] = '\0';
	return 0;
}

int fake_pr_out(struct fake_pr *pr, const struct dom_nexus *nexus,
		const struct dom_pr *out, bool *changed, uint64_t *bad_offset)
{
	int reg, rv;

	*changed = true;
	if (out->action >= DOM_SPC2_RESERVE)
		return spc2(pr, nexus, out);
	if (spc2_conflict(pr, nexus))
		return -EPERM;
	reg = find(pr, nexus->initiator_port, nexus->target_port);
	if (out->action == DOM_PR_REGISTER ||
	    out->action == DOM_PR_REGISTER_AND_IGNORE)
		return pr_register(pr, nexus, out, reg, bad_offset);
	if (reg < 0 || pr->regs[reg].key != out->key)
		return -EPERM;
	switch (out->action) {
	case DOM_PR_RESERVE:
		return pr_reserve(pr, out, reg);
	case DOM_PR_RELEASE:
		return pr_release(pr, nexus, out, reg, bad_offset);
	case DOM_PR_CLEAR:
		attention_all(pr, nexus, DOM_UA_RESERVATION_PREEMPTED);
		pr->held = false;
		pr->count = 0;
		pr->generation++;
		return 0;
	case DOM_PR_PREEMPT:
	case DOM_PR_PREEMPT_AND_ABORT:
		rv = pr_preempt(pr, nexus, out, bad_offset);
		return rv;
	case DOM_PR_REGISTER_AND_MOVE:
		return pr_move(pr, nexus, out, reg, bad_offset);
	default:
		return -EINVAL;
	}
}

const struct dom_reservation *fake_pr_view(struct fake_pr *pr)
{
	pr->view = (struct dom_reservation){
		.generation = pr->generation,
		.registrations_count = pr->count,
		.registrations = pr->regs,
		.held = pr->held,
		.holder = pr->holder,
		.type = pr->held ? pr->type : 0,
		.aptpl = pr->aptpl,
		.spc2_target_port = pr->spc2_target_port,
	};
	strcpy(pr->view.spc2_holder, pr->spc2_holder);
	return &pr->view;
}
