/* fake_dom's two halves: memory and requests; reservations. */
#ifndef BASALT_TESTS_FAKE_DOM_INT_H
#define BASALT_TESTS_FAKE_DOM_INT_H

#include "base/err.h"
#include "tests/lib/fake_dom.h"

struct fake_login {
	char initiator_port[256];
	uint16_t target_port;
	uint64_t generation;
	unsigned attention;
	TAILQ_ENTRY(fake_login) link;
};

struct fake_pr {
	uint32_t generation;
	unsigned count;
	struct dom_registration regs[DOM_REGISTRATIONS_MAX];
	bool held, aptpl;
	unsigned holder;
	uint8_t type;
	char spc2_holder[256];
	uint16_t spc2_target_port;
	bool late; /* fake_dom_late() */
	struct dom_nexus coming; /* its RESERVE is on its way; no name: none */
	struct dom_reservation view;
	TAILQ_HEAD(fake_logins, fake_login) logins;
};

void fake_pr_init(struct fake_pr *pr);
void fake_pr_fini(struct fake_pr *pr);
bool fake_pr_allowed(const struct fake_pr *pr, const struct dom_nexus *nexus,
		     enum dom_access access);

/*
 * 0 or -errno as dom_reserve(); *@changed: watches are to hear of it;
 * *@bad_offset with -EINVAL.
 */
int fake_pr_out(struct fake_pr *pr, const struct dom_nexus *nexus,
		const struct dom_pr *out, bool *changed, uint64_t *bad_offset);
const struct dom_reservation *fake_pr_view(struct fake_pr *pr);

#endif
