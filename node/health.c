/*
 * health: what node itself can tell is not well, each with its cause and what
 * to do.  Run on the loop; nothing here waits, or looks through very many things:
 * look.c has done that.
 */
#include "base/size.h"
#include "base/util.h"
#include "node/admin_int.h"

#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 3, 4))) static void
say(struct health_result *out, enum health_level level, const char *fmt, ...)
{
	va_list ap;

	out->level = level;
	va_start(ap, fmt);
	vsnprintf(out->cause, sizeof(out->cause), fmt, ap);
	va_end(ap);
}

#define FIX(out, ...) snprintf((out)->fix, sizeof((out)->fix), __VA_ARGS__)

static void check_cluster(struct health_check *check, struct health_result *out)
{
	struct node *node = check->data;

	if (node->state == NODE_ALONE) {
		say(out, HEALTH_WARN, "node %s is in no cluster",
		    node->config->name);
		FIX(out, "basalt cluster init --name NAME");
	} else if (node->state == NODE_STARTING && node->entry_waits) {
		say(out, HEALTH_BAD,
		    "the directory does not answer: this node's entry waits "
		    "for it");
		FIX(out, "Look at the disk under data_dir %.120s.",
		    node->config->data_dir);
	} else if (node->state == NODE_STARTING) {
		say(out, HEALTH_WARN, "the directory is being opened");
		FIX(out, "Wait; the log says what takes long.");
	}
}

static void check_directory(struct health_check *check,
			    struct health_result *out)
{
	struct node *node = check->data;

	/* cmmds registers checks of its own for store and voters. */
	if (node->state != NODE_UP || cmmds_session_valid(node->cmmds))
		return;
	say(out, HEALTH_BAD,
	    "the directory has no leader: nothing can be changed and no object "
	    "be taken over");
	FIX(out, "The log of room cmmds says why.");
}

/* Whatever else there is to say of it: it goes. */
static void half_removed_tell(const struct node_disk *d,
			      struct health_result *out)
{
	char word[NODE_DISK_WORD_MAX];

	if (out->level >= HEALTH_WARN)
		return;
	say(out, HEALTH_WARN, "disk %.100s: %s", d->path, ADMIN_HALF_REMOVED);
	FIX(out, ADMIN_HALF_REMOVED_FIX, node__disk_word(d, word));
}

/* One that was opened. */
static void online_look(const struct node_disk *d, struct health_result *out)
{
	char scrubbed[200], word[NODE_DISK_WORD_MAX], wants[NODE_WANTS_MAX];
	struct lsom_disk_info info;

	if (admin__disk_pending(d) && out->level == HEALTH_OK) {
		say(out, HEALTH_INFO,
		    "disk %.100s is not added yet: it waits for the "
		    "directory",
		    d->path);
		FIX(out, "%s", ADMIN_PENDING_FIX);
	}
	lsom_disk_info(d->disk, &info);
	if (info.state == LSOM_DISK_FAILED) {
		say(out, HEALTH_BAD, "disk %.100s failed: %.120s", d->path,
		    info.failure);
		node__disk_failed_fix(d, &info, out->fix, sizeof(out->fix));
		return;
	}
	if (info.silent_ns >= LSOM_SILENT_NS) {
		say(out, HEALTH_BAD, "disk %.100s has not answered for %llu s",
		    d->path, (unsigned long long)(info.silent_ns / SEC));
		FIX(out, "%s", NODE_SILENT_FIX);
		return;
	}
	if (info.index_wants < 0) {
		node__index_wants_tell(info.index_wants, wants);
		say(out, HEALTH_BAD, "disk %.100s: %s", d->path, wants);
		node__disk_failed_fix(d, &info, out->fix, sizeof(out->fix));
		return;
	}
	if (info.damage[0] != '\0') {
		say(out, HEALTH_WARN, "disk %.100s: when it was opened, %.120s",
		    d->path, info.damage);
		FIX(out, "%s", NODE_DAMAGE_FIX);
	} else if (out->level < HEALTH_WARN &&
		   admin__scrub_tell(d, scrubbed, sizeof(scrubbed))) {
		say(out, HEALTH_WARN, "disk %.100s: %s", d->path, scrubbed);
		FIX(out, ADMIN_SCRUB_FIX, node__disk_word(d, word));
	} else if (info.media_errors > 0 && out->level < HEALTH_WARN) {
		say(out, HEALTH_WARN,
		    "disk %.100s: since it was opened, %llu read%s "
		    "failed or brought what was not written",
		    d->path, (unsigned long long)info.media_errors,
		    info.media_errors == 1 ? "" : "s");
		FIX(out, "%s", NODE_MEDIA_FIX);
	}
}

/* One that is opened or closed and hangs, or was removed meanwhile.  True: told. */
static bool under_way_look(struct node_disk *d, struct health_result *out)
{
	uint64_t silent = node__disk_silent_ns(d);
	char text[NODE_SILENT_MAX];

	if (d->state != NODE_DISK_OPENING && d->state != NODE_DISK_CLOSING)
		return false;
	if (d->erase && out->level == HEALTH_OK) {
		node__leaving_tell(d, text);
		say(out, HEALTH_INFO, "disk %.100s: %s", d->path, text);
		FIX(out, "Wait; or restart basaltd, which lets it go.");
	}
	if (d->erase)
		return true;
	if (silent < LSOM_SILENT_NS)
		return false;
	node__silent_tell(d, silent, text);
	say(out, HEALTH_BAD, "disk %.100s is being %s: %s", d->path,
	    d->state == NODE_DISK_OPENING ? "opened" : "closed", text);
	node__silent_fix(d, out->fix, sizeof(out->fix));
	return true;
}

static void check_disks(struct health_check *check, struct health_result *out)
{
	struct node *node = check->data;
	struct node_disk *d;
	unsigned count = 0;

	if (node->state != NODE_UP)
		return;
	TAILQ_FOREACH (d, &node->disks, link) {
		count++;
		if (admin__disk_half_removed(d)) {
			half_removed_tell(d, out);
			continue;
		}
		if (under_way_look(d, out))
			continue;
		if (d->state == NODE_DISK_OPENING && d->again) {
			say(out, HEALTH_BAD,
			    "disk %.100s is out of service: %.120s", d->path,
			    d->why);
			FIX(out, "Wait: it is just tried again.");
			return;
		}
		if (d->state == NODE_DISK_FAILED ||
		    d->state == NODE_DISK_CLOSED) {
			say(out, HEALTH_BAD,
			    "disk %.100s is out of service: "
			    "%.120s",
			    d->path, d->why);
			node__disk_fix(d, out->fix, sizeof(out->fix));
			return;
		}
		if (d->state == NODE_DISK_OPENING && out->level == HEALTH_OK) {
			say(out, HEALTH_INFO,
			    "disk %.100s is not in service yet: %s, %u %% done",
			    d->path,
			    d->flags & NODE_OPEN_REBUILD
				    ? "its index is rebuilt from its log"
				    : "it is being opened",
			    d->open.percent);
			FIX(out, "Wait; the log says what takes long.");
		}
		if (d->state == NODE_DISK_CLOSING && out->level == HEALTH_OK) {
			say(out, HEALTH_INFO, "disk %.100s is being closed",
			    d->path);
			FIX(out, "Wait; it ends what it has begun.");
		}
		if (d->state == NODE_DISK_ONLINE)
			online_look(d, out);
		if (out->level == HEALTH_BAD)
			return;
	}
	if (count == 0) {
		say(out, HEALTH_WARN, "node %s has no disk",
		    node->config->name);
		FIX(out, "basalt disk add PATH");
	}
}

/* Does @d hold a part of a virtual disk that is not reserved whole? */
static bool has_thin(const struct node *node, const struct node_disk *d)
{
	return d->thin_ns > 0 && d->thin_ns >= node->looked.since_ns;
}

/* What is reserved: others have it, or must not have it.  True: told. */
static bool reserved_tell(const struct node *node, const struct node_disk *d,
			  const struct lsom_disk_info *info,
			  struct health_result *out)
{
	char text[SIZE_TEXT_MAX];

	if (info->uncovered_bytes > 0) {
		say(out, HEALTH_BAD,
		    "disk %.120s: of what is reserved there %s are missing: "
		    "others had used them before",
		    d->path, size_format(info->uncovered_bytes, text));
		FIX(out, "%s", NODE_UNCOVERED_FIX);
		return true;
	}
	if (info->kept_bytes == 0 ||
	    info->used_bytes + info->kept_bytes < info->usable_bytes ||
	    !has_thin(node, d))
		return false;
	say(out, HEALTH_BAD,
	    "disk %.120s: all that is left, %s, is reserved: writes beyond are "
	    "refused",
	    d->path, size_format(info->kept_bytes, text));
	FIX(out, "basalt disk add PATH, or delete or unmap data.");
	return true;
}

static void check_space(struct health_check *check, struct health_result *out)
{
	struct node *node = check->data;
	struct lsom_disk_info info;
	struct node_disk *d;
	char free_text[SIZE_TEXT_MAX];

	TAILQ_FOREACH (d, &node->disks, link) {
		uint64_t percent;

		if (d->state != NODE_DISK_ONLINE)
			continue;
		lsom_disk_info(d->disk, &info);
		if (info.usable_bytes == 0)
			continue;
		percent = info.used_bytes * 100 / info.usable_bytes;
		if (info.state == LSOM_DISK_FULL) {
			say(out, HEALTH_BAD,
			    "disk %.120s is full: writes are refused", d->path);
		} else if (reserved_tell(node, d, &info, out)) {
			continue;
		} else if (percent >= 85 && out->level < HEALTH_BAD) {
			size_format(info.usable_bytes - info.used_bytes,
				    free_text);
			say(out, HEALTH_WARN,
			    "disk %.120s is %u%% full, %s left", d->path,
			    (unsigned)percent, free_text);
		} else {
			continue;
		}
		FIX(out, "basalt disk add PATH, or delete or unmap data.");
	}
}

static void check_datadir(struct health_check *check, struct health_result *out)
{
	struct node *node = check->data;
	char why[64];

	out->level = node__datadir_level(node, why, sizeof(why));
	if (out->level == HEALTH_OK)
		return;
	say(out, out->level, "data_dir %.150s: %s", node->config->data_dir,
	    why);
	FIX(out,
	    "%s: disks stop when their index cannot be written, and nothing "
	    "can be changed when the directory cannot.",
	    node->datadir.status < 0  ? "See that it is there, as it was"
	    : node->datadir.read_only ? "The kernel's log may say why"
				      : "Free space there");
}

static void check_objects(struct health_check *check, struct health_result *out)
{
	const struct node *node = check->data;
	const struct node_looked *looked = &node->looked;

	if (node->state != NODE_UP)
		return;
	if (looked->unavailable > 0) {
		say(out, HEALTH_BAD,
		    "virtual disk %.64s is unavailable: no complete copy can "
		    "be reached",
		    looked->an_unavailable);
		FIX(out,
		    "basalt object show %.64s names its disks; basalt disk "
		    "list tells what is wrong there.",
		    looked->an_unavailable);
	} else if (looked->noncompliant > 0) {
		say(out, HEALTH_WARN,
		    "virtual disk %.64s is not compliant: %.150s",
		    looked->a_noncompliant, looked->noncompliant_why);
		FIX(out,
		    "It is not laid out anew, whatever is added: make another "
		    "one once there is what its policy asks for, and copy it; "
		    "or give it a policy that it does for (basalt vdisk set "
		    "%.64s).",
		    looked->a_noncompliant);
	}
}

static void check_targets(struct health_check *check, struct health_result *out)
{
	struct node *node = check->data;
	const struct node_looked *looked = &node->looked;
	const char *shut;

	if (node->state != NODE_UP || node->push == NULL)
		return;
	shut = node__push_shut(node->push);
	if (shut != NULL) {
		say(out, HEALTH_BAD,
		    "target %.63s: its CHAP secret cannot be opened: nobody is "
		    "let in",
		    shut);
		FIX(out,
		    "Put this cluster's cluster.key back and restart basaltd; "
		    "if it is lost, set the secret anew: basalt target set "
		    "%.63s --chap USER",
		    shut);
		return;
	}
	if (looked->targets_open > 0) {
		say(out, HEALTH_INFO,
		    "target %.63s%s: every initiator that reaches a portal is "
		    "let in, without CHAP",
		    looked->an_open,
		    looked->targets_open > 1 ? " and others" : "");
		FIX(out, "basalt target set %.63s --deny any --allow IQN",
		    looked->an_open);
	} else if (looked->targets_closed > 0) {
		say(out, HEALTH_INFO, "target %.63s%s admits nobody",
		    looked->a_closed,
		    looked->targets_closed > 1 ? " and others" : "");
		FIX(out, "basalt target set %.63s --allow IQN",
		    looked->a_closed);
	}
}

/* The first of them, and why.  There is one. */
static const struct config_portal *portal_unserved(const struct node *node,
						   char why[120])
{
	unsigned i = 0;

	while (node->portals[i].tcp || node->portals[i].iser)
		i++;
	node__listen_why(&node->config->portals[i], node->portals[i].status,
			 why, 120);
	return &node->config->portals[i];
}

/* They listen; but an address may have gone since. */
static void portals_there(const struct node *node, struct health_result *out)
{
	char why[120];

	for (unsigned i = 0; i < node->config->portals_count; i++) {
		const struct config_portal *p = &node->config->portals[i];
		int rv = node__portal_there(p);

		if (rv == 0)
			continue;
		node__listen_why(p, rv, why, sizeof(why));
		say(out, HEALTH_BAD, "portal %.63s is not reached: %.100s",
		    p->text, why);
		FIX(out, "Bring it up: the portal serves again then.");
		return;
	}
}

static void check_portals(struct health_check *check, struct health_result *out)
{
	struct node *node = check->data;
	char why[120];

	if (node->state != NODE_UP)
		return;
	if (!node->serving) {
		say(out, HEALTH_WARN,
		    "the portals wait for a disk that is "
		    "still recovering");
		FIX(out, "Wait; basalt disk list shows which.");
	} else if (node->portals_listening < node->config->portals_count) {
		const struct config_portal *first = portal_unserved(node, why);

		say(out, HEALTH_BAD,
		    "%u of %u portals cannot listen: %.63s: %.100s",
		    node->config->portals_count - node->portals_listening,
		    node->config->portals_count, first->text, why);
		FIX(out,
		    "basalt portal list names them: bring up the address or "
		    "free the port (it is tried every %llu s), or change "
		    "'portals' and restart basaltd.",
		    (unsigned long long)(NODE_LOOK_NS / SEC));
	} else {
		portals_there(node, out);
	}
}

static void check_metrics(struct health_check *check, struct health_result *out)
{
	struct node *node = check->data;
	char why[120];

	if (node->metrics_status == 0)
		return;
	node__listen_why(&node->config->metrics, node->metrics_status, why,
			 sizeof(why));
	say(out, HEALTH_WARN, "metrics %s: cannot listen: %s",
	    node->config->metrics.text, why);
	FIX(out,
	    "Bring up the address or free the port (it is tried every %llu s), "
	    "or change 'metrics' and restart basaltd.",
	    (unsigned long long)(NODE_LOOK_NS / SEC));
}

static void check_memory(struct health_check *check, struct health_result *out)
{
	struct node *node = check->data;

	if (!node->arena_locked) {
		say(out, HEALTH_INFO, "the arena is not locked in memory");
		FIX(out, "Raise RLIMIT_MEMLOCK (LimitMEMLOCK= in the unit) "
			 "above [memory] arena.");
	}
}

static const struct {
	const char *name;
	void (*run)(struct health_check *check, struct health_result *out);
} checks[] = {
	{ "cluster", check_cluster },
	{ "directory", check_directory },
	{ "disks", check_disks },
	{ "disk-space", check_space },
	{ "data-dir-space", check_datadir },
	{ "virtual-disks", check_objects },
	{ "targets", check_targets },
	{ "portals", check_portals },
	{ "metrics", check_metrics },
	{ "memory-lock", check_memory },
};

void node__health_open(struct node *node)
{
	_Static_assert(ARRAY_LEN(checks) == ARRAY_LEN(node->checks),
		       "one record each");

	for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
		node->checks[i].name = checks[i].name;
		node->checks[i].run = checks[i].run;
		node->checks[i].data = node;
		health_register(&node->checks[i]);
	}
}

void node__health_close(struct node *node)
{
	for (size_t i = 0; i < ARRAY_LEN(checks); i++)
		health_unregister(&node->checks[i]);
}

static void worst_of(const struct health_check *check,
		     const struct health_result *result, void *arg)
{
	enum health_level *worst = arg;

	*worst = MAX(*worst, result->level);
}

enum health_level node__health_worst(void)
{
	enum health_level worst = HEALTH_OK;

	health_each(worst_of, &worst);
	return worst;
}
