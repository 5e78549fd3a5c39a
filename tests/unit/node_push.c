/* What iscsi is told of a target; the directory and iscsi are these tests'. */
#include "base/util.h"
#include "node/node_int.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <string.h>

static struct {
	Directory__Target target;
	struct cmmds_entry entry;
	int secret_status; /* of the next look at a secret */
	unsigned sets, allowed; /* what iscsi was told; the last time */
	char user[64];
	struct cmmds_subscription *luns;
	unsigned walked; /* entries of lists */
} is;

static struct node node;
static struct test_shard ts;

/* ---- the rooms ---- */

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len);
const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name);
void __wrap_cmmds_subscribe(struct cmmds *cmmds,
			    struct cmmds_subscription *sub);
void __wrap_cmmds_unsubscribe(struct cmmds_subscription *sub);
int __wrap_iscsi_target_set(struct iscsi *iscsi,
			    const struct iscsi_target_conf *conf);
int __wrap_node__secret_open(const uint8_t key[NODE_KEY_LEN],
			     const char *context, const uint8_t *sealed,
			     size_t sealed_len, uint8_t *out, size_t out_max,
			     size_t *len);

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	is.walked++;
	return kind == CMMDS_TARGET && after == NULL ? &is.entry : NULL;
}

/* It has no LUN. */
const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len)
{
	return kind == CMMDS_TARGET ? &is.entry : NULL;
}

const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name)
{
	return &is.target;
}

void __wrap_cmmds_subscribe(struct cmmds *cmmds, struct cmmds_subscription *sub)
{
	if (sub->kind == CMMDS_LUN)
		is.luns = sub;
}

void __wrap_cmmds_unsubscribe(struct cmmds_subscription *sub)
{
}

int __wrap_iscsi_target_set(struct iscsi *iscsi,
			    const struct iscsi_target_conf *conf)
{
	is.sets++;
	is.allowed = conf->allow_count;
	snprintf(is.user, sizeof(is.user), "%s", conf->chap_user);
	return 0;
}

int __wrap_node__secret_open(const uint8_t key[NODE_KEY_LEN],
			     const char *context, const uint8_t *sealed,
			     size_t sealed_len, uint8_t *out, size_t out_max,
			     size_t *len)
{
	int rv = is.secret_status;

	is.secret_status = 0;
	*len = rv < 0 ? 0 : 1;
	return rv;
}

/* A target with a secret, which is looked at with @status at first. */
static struct push *pushed(int status)
{
	static char *allow[] = { "iqn.2026-01.test:a" };
	static uint8_t sealed[1];
	struct push *push;

	memset(&is, 0, sizeof(is));
	directory__target__init(&is.target);
	is.target.name = "t";
	is.target.iqn = "iqn.2026-01.test:t";
	is.target.chap_user = "user";
	is.target.chap_secret_sealed.data = sealed;
	is.target.chap_secret_sealed.len = sizeof(sealed);
	is.target.allow = allow;
	is.target.n_allow = ARRAY_LEN(allow);
	is.entry.message = &is.target.base;
	is.entry.revision = 1;
	is.secret_status = status;
	test_memory_open(&ts);
	node.env = ts.env;
	CHECK_EQ(node__push_open(&node, &push), 0);
	return push;
}

struct nap {
	struct env_timer timer;
	bool over;
};

static void nap_over(struct env_timer *timer)
{
	container_of(timer, struct nap, timer)->over = true;
}

static void nap(uint64_t ns)
{
	struct nap n = { .timer.cb = nap_over };

	env_timer_start(ts.env, &n.timer, ns);
	test_run(&ts, &n.over);
}

/* One that cannot be opened lets nobody in, and that is so until it is set. */
TEST(node_push, a_secret_that_is_damaged)
{
	struct push *push = pushed(-EBADMSG);

	CHECK_EQ(is.sets, 1);
	CHECK(is.allowed == 0 && is.user[0] == '\0');
	node__push_close(push);
	nap(2 * SEC);
	CHECK_EQ(is.sets, 1);
	test_shard_close(&ts);
}

/* One for which there is no memory is as good as it was. */
TEST(node_push, a_secret_without_memory)
{
	struct push *push = pushed(-ENOMEM);

	CHECK_EQ(is.sets, 0);
	nap(2 * SEC);
	CHECK_EQ(is.sets, 1);
	CHECK_EQ(is.allowed, 1);
	CHECK_STR(is.user, "user");
	node__push_close(push);
	nap(SEC);
	test_shard_close(&ts);
}

static void luns_go(unsigned count)
{
	Directory__Lun lun = DIRECTORY__LUN__INIT;
	struct cmmds_entry entry = { .message = &lun.base };
	struct cmmds_change change = { .kind = CMMDS_LUN, .old_entry = &entry };

	lun.target = "t";
	for (lun.lun = 0; lun.lun < count; lun.lun++)
		is.luns->cb(is.luns, &change);
	is.walked = 0;
	nap(MSEC);
}

/* What one command takes away is looked at, and not all that there are. */
TEST(node_push, a_target_of_many_luns_goes)
{
	struct push *push = pushed(0);

	luns_go(257);
	CHECK_EQ(is.walked, 0);
	luns_go(3);
	CHECK_EQ(is.walked, 0);
	/* More than that is no more than all. */
	luns_go(5000);
	CHECK(is.walked > 0);
	luns_go(257);
	CHECK_EQ(is.walked, 0);
	node__push_close(push);
	nap(MSEC);
	test_shard_close(&ts);
}
