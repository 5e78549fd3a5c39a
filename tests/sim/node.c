/*
 * node: the directory with Raft in the loop, dom, and lsom with its cleaner,
 * checkpoints and recovery, as basaltd puts them together, under clients.
 *
 * One object over one to three small disks, striped where there are several.
 * Clients read, write whole blocks and parts of them, unmap, compare and write,
 * atomically across stripes now and then.  The power goes at any event; the
 * node comes back, opens the directory, its disks and the object, and what
 * clients saw before, meanwhile and after must have one order.
 */
#include "tests/sim/node.h"

#include "base/err.h"
#include "dom/dom_int.h"

#include <stdlib.h>

/* ---- running, with the power switch at hand ---- */

static void forget(struct node *n)
{
	memset(n->clients, 0, sizeof(n->clients));
	n->cmmds = NULL;
	n->lsom = NULL;
	n->dom = NULL;
	n->object = NULL;
	n->resizing = n->creating = n->erasing = false;
	memset(n->disks, 0, sizeof(n->disks));
}

static void tampered_note(struct node *n)
{
	unsigned i;

	for (i = 0; i < n->disks_count; i++)
		if (n->sim->disks[i].tampered)
			history_lossy(n->sim->history);
}

/* A takeover that ends with the power may have found a loss, and told it once. */
static void loss_note(struct node *n)
{
	const struct dom__owner *owner;

	if (n->dom == NULL)
		return;
	TAILQ_FOREACH (owner, &n->dom->owners, link)
		if (uuid_equal(&owner->oid, &n->oid) && owner->lossy)
			n->lossy = true;
}

static void cut(struct node *n)
{
	struct sim *sim = n->sim;
	char path[32];
	unsigned i;

	loss_note(n);
	sim_power_cut(sim);
	history_cut(sim->history);
	forget(n);
	tampered_note(n);
	for (i = 0; i < n->disks_count; i++) {
		if (!sim_chance(sim, 6))
			continue;
		n->rebuild[i] = true;
		snprintf(path, sizeof(path), "index%u", i);
		if (sim_chance(sim, 2))
			sim_store_wipe(sim, path);
	}
	n->down = true;
	n->crash_at = UINT64_MAX;
}

static bool step(struct node *n)
{
	if (n->down)
		return false;
	if (n->sim->events >= n->crash_at) {
		cut(n);
		return false;
	}
	return sim_step(n->sim);
}

bool node_wait(struct node *n)
{
	uint64_t end = n->sim->now_ns + 120 * SEC;

	while (!n->done) {
		if (!step(n)) {
			if (n->down)
				return false;
			sim_violation(n->sim, "nothing is left to do, and a "
					      "request has no answer");
		}
		if (n->sim->now_ns > end)
			sim_violation(n->sim, "no answer within 120 s: %s",
				      n->what);
	}
	return true;
}

static void begin(struct node *n, const char *what)
{
	n->what = what;
	n->done = false;
	n->status = 0;
}

static void finish(struct node *n, int status)
{
	n->status = status;
	n->done = true;
}

static void on_done(void *arg)
{
	finish(arg, 0);
}

/* ---- the directory ---- */

/* Every entry but this run's incarnation, and the index it stands for. */
static uint64_t directory_hash(struct node *n, uint64_t *revision)
{
	const struct cmmds_entry *e;
	struct sim scratch = { .hash = 1 };
	struct cmmds_info info;
	unsigned kind;

	for (kind = CMMDS_CLUSTER; kind < CMMDS_KINDS; kind++)
		for (e = NULL; (e = cmmds_next(n->cmmds, kind, e)) != NULL;) {
			sim_hash(&scratch, kind);
			sim_hash(&scratch, e->revision);
			sim_hash_bytes(&scratch, e->key, e->key_len);
			sim_hash_bytes(&scratch, e->value, e->value_len);
		}
	cmmds_info(n->cmmds, &info);
	*revision = info.revision;
	return scratch.hash;
}

/* I15: what a log replays to is what was applied from it. */
static void directory_note(struct node *n)
{
	uint64_t revision, hash = directory_hash(n, &revision);
	unsigned i;

	if (revision < n->revision)
		sim_violation(n->sim,
			      "I15: the directory went back from "
			      "revision %llu to %llu",
			      (unsigned long long)n->revision,
			      (unsigned long long)revision);
	n->revision = revision;
	for (i = 0; i < NOTES; i++)
		if (n->notes[i].revision == revision && n->notes[i].hash != 0 &&
		    n->notes[i].hash != hash)
			sim_violation(n->sim,
				      "I15: revision %llu of the "
				      "directory has two contents",
				      (unsigned long long)revision);
	n->notes[n->notes_next++ % NOTES] =
		(struct note){ .revision = revision, .hash = hash };
}

/* I2 of the directory: epochs and sequence numbers never go back. */
static void object_note(struct node *n)
{
	const Directory__Object *o = cmmds_object(n->cmmds, &n->oid);

	if (o == NULL)
		sim_violation(n->sim, "the object's entry is gone");
	if (o->oepoch < n->oepoch || o->csn < n->csn)
		sim_violation(n->sim, "I2: the object's entry went back");
	n->oepoch = o->oepoch;
	n->csn = o->csn;
}

static void on_directory(struct cmmds_open *req, int status)
{
	struct node *n = req->data;

	n->cmmds = req->opened;
	finish(n, status);
}

static void on_command(struct cmmds_command *cmd, int status)
{
	finish(cmd->data, status);
}

static bool entry_put(struct node *n, enum cmmds_kind kind, const void *key,
		      size_t len, const ProtobufCMessage *message)
{
	static struct cmmds_command cmd;

	memset(&cmd, 0, sizeof(cmd));
	cmd.data = n;
	cmmds_command_init(&cmd);
	cmmds_put(&cmd, kind, key, len, CMMDS_ANY, message);
	begin(n, "a command of the directory");
	n->status = cmmds_propose(n->cmmds, &cmd, 0, on_command);
	if (n->status == 0 && !node_wait(n))
		return false;
	if (n->status < 0)
		sim_violation(n->sim, "a command of the directory: %s",
			      err_text(n->status));
	cmmds_command_fini(&cmd);
	return true;
}

static bool node_put(struct node *n)
{
	Directory__Node node = DIRECTORY__NODE__INIT;

	node.uuid.data = n->id.b;
	node.uuid.len = sizeof(n->id.b);
	node.name = "n1";
	node.address = "127.0.0.1";
	node.incarnation = n->incarnation;
	node.session = 1;
	return entry_put(n, CMMDS_NODE, n->id.b, sizeof(n->id.b), &node.base);
}

static bool disk_put(struct node *n, unsigned i)
{
	Directory__Disk disk = DIRECTORY__DISK__INIT;

	disk.uuid.data = n->disk_ids[i].b;
	disk.uuid.len = sizeof(n->disk_ids[i].b);
	disk.node.data = n->id.b;
	disk.node.len = sizeof(n->id.b);
	disk.path = n->sim->disks[i].path;
	disk.serial = "";
	disk.model = "";
	/* More than there is: the disks are thin, and fill. */
	disk.raw_bytes = disk.usable_bytes = 64ull << 20;
	return entry_put(n, CMMDS_DISK, n->disk_ids[i].b,
			 sizeof(n->disk_ids[i].b), &disk.base);
}

static bool policy_put(struct node *n)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;

	p.name = "p";
	p.stripe_width = n->disks_count;
	return entry_put(n, CMMDS_POLICY, "p", 1, &p.base);
}

/* ---- disks and object ---- */

static void on_disk(struct lsom_disk_open *req, int status)
{
	finish(req->data, status);
}

/* False: the power went, or the seed ends here (n->over). */
static bool disk_open(struct node *n, unsigned i)
{
	static struct lsom_disk_open req;
	char index[32];

	snprintf(index, sizeof(index), "index%u", i);
	req = (struct lsom_disk_open){ .data = n,
				       .path = n->sim->disks[i].path,
				       .index_path = index,
				       .cluster = n->cluster,
				       .disk = n->disk_ids[i],
				       .rebuild = n->rebuild[i] };
	begin(n, "opening a disk");
	if (lsom_disk_open(n->lsom, &req, on_disk) < 0)
		abort();
	if (!node_wait(n))
		return false;
	if (n->status == -EUCLEAN && n->rebuilt[i] && !n->rebuild[i]) {
		/* A rebuild that the power cut short: told to do it again. */
		n->rebuild[i] = true;
		cut(n);
		return false;
	}
	if (n->status < 0) {
		if (!node__any_tampered(n))
			sim_violation(n->sim, "%s does not open: %s (%s)",
				      req.path, err_text(n->status), req.why);
		n->over = true;
		return false;
	}
	n->rebuilt[i] |= n->rebuild[i];
	n->rebuild[i] = false;
	n->disks[i] = req.opened;
	return true;
}

static void on_created(struct dom_create *req, int status)
{
	struct node *n = req->data;

	n->oid = req->oid;
	finish(n, status);
}

static bool create(struct node *n)
{
	static struct dom_create req;

	memset(&req, 0, sizeof(req));
	req.data = n;
	req.size_bytes = (uint64_t)n->sectors * SECTOR;
	req.policy = "p";
	req.who = "sim";
	begin(n, "creating the object");
	n->status = dom_create(n->dom, &req, on_created);
	if (n->status == 0 && !node_wait(n))
		return false;
	if (n->status < 0)
		sim_violation(n->sim, "the object cannot be created: %s (%s)",
			      err_text(n->status), req.why);
	n->created = true;
	return true;
}

static void on_opened(struct dom_object_open *req, int status)
{
	struct node *n = req->data;

	n->object = req->object;
	finish(n, status);
}

static bool object_open(struct node *n)
{
	static struct dom_object_open req;

	memset(&req, 0, sizeof(req));
	req.data = n;
	begin(n, "opening the object");
	n->status = dom_object_open(n->dom, &req, &n->oid, on_opened);
	if (n->status == 0 && !node_wait(n))
		return false;
	if (n->status < 0) {
		if (n->nemesis == NEMESIS_SWAP && n->nemesis_begun) {
			n->over = true; /* refused, as it should be */
			return false;
		}
		if (node__any_tampered(n)) {
			n->over = true;
			return false;
		}
		if (!node__fault_excuses(n, n->status))
			sim_violation(n->sim, "the object does not open: %s",
				      err_text(n->status));
		cut(n);
		return false;
	}
	if (n->nemesis == NEMESIS_SWAP && n->nemesis_done)
		sim_violation(n->sim, "R13: another incarnation of a component "
				      "is served");
	if (dom_object_lossy(n->object))
		n->lossy = true;
	if (n->nemesis == NEMESIS_FORGET && n->nemesis_done && !n->lossy)
		sim_violation(n->sim, "R14: a component that forgot is served "
				      "as if nothing were lost");
	if (n->lossy && !node__any_tampered(n) && n->nemesis != NEMESIS_FORGET)
		sim_violation(n->sim, "a loss is reported, and nothing was "
				      "lost");
	return true;
}

/* ---- a component that is not what it was ---- */

static void on_meta(struct lsom_meta *req, int status)
{
	finish(req->data, status);
}

struct search {
	struct uuid oid;
	struct lsom_comp_meta meta;
	bool found;
};

static void comp_find(struct lsom_comp *comp, void *arg)
{
	struct search *s = arg;

	if (uuid_equal(&lsom_comp_meta(comp)->oid, &s->oid)) {
		s->meta = *lsom_comp_meta(comp);
		s->found = true;
	}
}

static bool meta_change(struct node *n, struct lsom_disk *disk,
			const struct lsom_comp_meta *meta, enum lsom_meta_op op)
{
	static struct lsom_meta req;
	struct lsom_comp *comp;

	memset(&req, 0, sizeof(req));
	req.data = n;
	req.op = op;
	req.meta = *meta;
	begin(n, "a metadata record");
	if (op == LSOM_CREATE) {
		n->status = lsom_comp_create(disk, &req, on_meta);
	} else {
		comp = lsom_comp_get(disk, &meta->cid);
		n->status = lsom_comp_update(comp, &req, on_meta);
		lsom_comp_put(comp);
	}
	if (n->status == 0 && !node_wait(n))
		return false;
	if (n->status < 0) {
		cut(n);
		return false;
	}
	return true;
}

static bool nemesis_change(struct node *n, struct lsom_disk *disk,
			   struct lsom_comp_meta *meta)
{
	if (n->nemesis == NEMESIS_FORGET) {
		sim_trace(n->sim, "FAULT: a component forgets");
		meta->g_all = meta->stable_lsn + 5;
		return meta_change(n, disk, meta, LSOM_SEAL);
	}
	sim_trace(n->sim, "FAULT: a component is another one");
	if (n->nemesis == NEMESIS_BARRED) {
		meta->state_seen = LSOM_STALE;
		return meta_change(n, disk, meta, LSOM_SEAL);
	}
	if (!meta_change(n, disk, meta, LSOM_DELETE))
		return false;
	meta->cinc++;
	return meta_change(n, disk, meta, LSOM_CREATE);
}

/* A cut on the way leaves it open whether it was done. */
static bool nemesis(struct node *n)
{
	struct lsom_disk *disk = n->disks[sim_random(n->sim, n->disks_count)];
	struct search s = { .oid = n->oid };

	lsom_comp_each(disk, comp_find, &s);
	if (!s.found)
		return true;
	n->nemesis_begun = true;
	if (!nemesis_change(n, disk, &s.meta))
		return false;
	n->nemesis_done = true;
	sim_trace(n->sim, "it has");
	return true;
}

/* ---- up and down ---- */

static bool rooms_open(struct node *n)
{
	struct lsom_config lc = { .env = &n->sim->life->loop.env,
				  .page_cache_bytes = 60000,
				  .discard_ns =
					  n->sim->config.trim ? SIM_TRIM_NS : 0,
				  .rules_off = sim_rules_lsom(n->sim) };
	struct dom_config dc = { .env = &n->sim->life->loop.env,
				 .cmmds = n->cmmds,
				 .node = n->id,
				 .rules_off = sim_rules_dom(n->sim) };

	if (lsom_open(&lc, &n->lsom) < 0)
		abort();
	dc.lsom = n->lsom;
	if (dom_open(&dc, &n->dom) < 0)
		abort();
	return true;
}

static bool directory_open(struct node *n, bool found)
{
	static struct cmmds_open req;
	struct cmmds_config config = { .env = &n->sim->life->loop.env,
				       .path = "directory",
				       .node = n->id,
				       .incarnation = ++n->incarnation,
				       .found = found,
				       .snapshot_bytes = 6000 };

	memset(&req, 0, sizeof(req));
	req.data = n;
	begin(n, "opening the directory");
	n->status = cmmds_open(&config, &req, on_directory);
	if (n->status == 0 && !node_wait(n))
		return false;
	if (n->status < 0)
		sim_violation(n->sim, "the directory does not open: %s (%s)",
			      err_text(n->status), req.why);
	if (!found)
		directory_note(n);
	return node_put(n);
}

bool node_up(struct node *n)
{
	bool first = !n->created;
	unsigned i;

	sim_power_on(n->sim);
	n->down = false;
	n->crash_at = UINT64_MAX;
	if (!first && !n->last && sim_chance(n->sim, 4))
		n->crash_at = n->sim->events + 10 + sim_random(n->sim, 400);
	if (!directory_open(n, first) || !rooms_open(n))
		return false;
	if (first && !policy_put(n))
		return false;
	for (i = 0; i < n->disks_count; i++) {
		if (first && !disk_put(n, i))
			return false;
		if (!disk_open(n, i))
			return false;
	}
	if (!first && n->nemesis != NEMESIS_NONE && sim_chance(n->sim, 2) &&
	    !nemesis(n))
		return false;
	for (i = 0; i < n->disks_count; i++)
		dom_disk_add(n->dom, n->disks[i]);
	if (!first)
		node_barred_message(n);
	if (first && !create(n))
		return false;
	if (!object_open(n))
		return false;
	object_note(n);
	directory_note(n);
	history_serving(n->sim->history);
	return true;
}

static bool quiet(const struct node *n)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		if (n->clients[i].busy)
			return false;
	return !n->resizing && !n->creating && !n->erasing;
}

static bool drain(struct node *n)
{
	uint64_t end = n->sim->now_ns + 90 * SEC;

	while (!quiet(n)) {
		if (!step(n)) {
			if (n->down)
				return false;
			sim_violation(n->sim, "a request is never answered");
		}
		if (n->sim->now_ns > end)
			sim_violation(n->sim, "no answer within 90 s");
	}
	return true;
}

static void on_closed(struct lsom_disk_close *req, int status)
{
	finish(req->data, status);
}

static void node_stop(struct node *n)
{
	static struct lsom_disk_close req;
	unsigned i;

	if (!drain(n))
		return;
	dom_object_close(n->object);
	n->object = NULL;
	begin(n, "closing dom");
	dom_close(n->dom, on_done, n);
	if (!node_wait(n))
		return;
	n->dom = NULL;
	for (i = 0; i < n->disks_count; i++) {
		memset(&req, 0, sizeof(req));
		req.data = n;
		begin(n, "closing a disk");
		if (lsom_disk_close(n->disks[i], &req, on_closed) < 0)
			abort();
		if (!node_wait(n))
			return;
	}
	lsom_close(n->lsom);
	directory_note(n);
	begin(n, "closing the directory");
	cmmds_close(n->cmmds, on_done, n);
	if (!node_wait(n))
		return;
	sim_power_off(n->sim);
	history_cut(n->sim->history);
	forget(n);
	tampered_note(n);
	n->down = true;
}

static bool look(struct node *n)
{
	struct client *c = &n->clients[0];
	uint32_t at, count;

	if (!drain(n))
		return false;
	for (at = 0; at < n->sectors; at += count) {
		count = MIN(400u, n->sectors - at);
		memset(c, 0, sizeof(*c));
		c->number = 99;
		c->kind = H_READ;
		c->io.data = n;
		c->sent_ns = n->sim->now_ns;
		c->op = history_start(n->sim->history, H_READ, 99, at, count);
		if (node__send(n, c, 0) == 0) {
			c->busy = true;
			if (!drain(n))
				return false;
		} else {
			history_end(n->sim->history, c->op, H_NEVER);
		}
	}
	return true;
}

static void fault_now(struct node *n)
{
	unsigned i = (unsigned)sim_random(n->sim, n->disks_count), k;
	struct sim_disk *d = &n->sim->disks[i];

	switch (n->fault) {
	case FAULT_WRITE:
		if (sim_chance(n->sim, 2))
			d->write_eio = 1 + sim_random(n->sim, 40);
		else
			d->gone = true;
		break;
	case FAULT_READ:
		d->read_eio = 1 + sim_random(n->sim, 20);
		break;
	case FAULT_ROT:
		if (sim_chance(n->sim, 3))
			d->misdirect = 1 + sim_random(n->sim, 20);
		else
			sim_disk_rot(d);
		break;
	case FAULT_STALL:
		d->stalled_until = n->sim->now_ns + sim_random(n->sim, 8 * SEC);
		break;
	case FAULT_INDEX:
		for (k = 0; k < n->sim->stores_count; k++)
			if (strncmp(n->sim->stores[k].path, "index", 5) == 0)
				n->sim->stores[k].apply_eio =
					1 + sim_random(n->sim, 3);
		break;
	}
}

static void work(struct node *n, unsigned ops)
{
	unsigned i, k;

	while (ops-- > 0 && !n->down) {
		i = (unsigned)sim_random(n->sim, CLIENTS);
		if (!n->clients[i].busy)
			node__client_send(n, i);
		if (n->sim->config.rough)
			node__rough(n);
		if (n->fault != FAULT_NONE && sim_chance(n->sim, 120))
			fault_now(n);
		if (sim_chance(n->sim, 50))
			directory_note(n);
		if (sim_chance(n->sim, 30))
			node_late_message(n);
		for (k = (unsigned)sim_random(n->sim, 16); k > 0; k--)
			if (!step(n))
				break;
	}
}

static void life(struct node *n, unsigned ops)
{
	if (sim_chance(n->sim, 3) && !look(n))
		return;
	if (n->brief && n->ups % 16 != 0) {
		n->crash_at = n->sim->events + sim_random(n->sim, 400);
		work(n, ops);
		if (!n->down)
			cut(n);
		return;
	}
	if (!sim_chance(n->sim, 10))
		n->crash_at = n->sim->events + 20 +
			      sim_random(n->sim, (uint64_t)ops * 10);
	work(n, ops);
	if (n->down)
		return;
	n->crash_at = sim_chance(n->sim, 2)
			      ? n->sim->events + sim_random(n->sim, 600)
			      : UINT64_MAX;
	if (!look(n))
		return;
	if (sim_chance(n->sim, 2))
		node_stop(n);
	else
		cut(n);
}

struct node *node_new(struct sim *sim)
{
	struct node *n = calloc(1, sizeof(*n));
	struct lsom_format format = { .tiny = true,
				      .segment_bytes = SIM_SEGMENT };
	uint64_t segments = 18 + sim_random(sim, 12);
	unsigned i;

	if (n == NULL)
		abort();
	n->sim = sim;
	n->id.b[0] = 1;
	n->cluster.b[0] = 2;
	n->incarnation = 10;
	n->disks_count = 1 + (unsigned)sim_random(sim, SIM_DISKS);
	n->fault = (unsigned)sim_random(sim, FAULTS);
	if (n->fault < FAULT_WRITE)
		n->fault = FAULT_NONE;
	if (n->fault == FAULT_NONE && sim_chance(sim, 3))
		n->nemesis = NEMESIS_SWAP + sim_random(sim, 3);
	/* 2 MiB a component; now and then more than its disk holds. */
	n->fill = sim_chance(sim, 5);
	n->brief = sim_chance(sim, 5);
	if (n->fill)
		segments = 17;
	n->sectors = (uint32_t)(n->disks_count * (n->fill ? 16 : 8) *
				(SIM_SEGMENT / SECTOR));
	n->seen = calloc(n->sectors, sizeof(*n->seen));
	if (n->seen == NULL)
		abort();
	sim->history = history_new(sim, n->sectors);
	sim_power_on(sim);
	for (i = 0; i < n->disks_count; i++) {
		sim_disk_init(sim, i, (1u << 20) + segments * SIM_SEGMENT);
		n->disk_ids[i].b[0] = (uint8_t)(100 + i);
		format.path = sim->disks[i].path;
		format.disk = n->disk_ids[i];
		format.cluster = n->cluster;
		if (lsom_disk_format(&sim->life->loop.env, &format) < 0)
			sim_violation(sim, "a disk cannot be formatted");
	}
	sim_power_off(sim);
	return n;
}

void node_run(struct sim *sim)
{
	struct node *n = node_new(sim);
	unsigned ops = sim->config.ops, spent = 0, part, i;

	if (ops == 0)
		ops = 900;
	n->down = true;
	while (spent < ops && n->ups++ < 80 && !n->over) {
		if (!node_up(n))
			continue;
		part = 50 + (unsigned)sim_random(sim, 400);
		spent += n->brief && n->ups % 16 != 0 ? part / 10 : part;
		life(n, part);
	}
	n->last = true;
	for (i = 0; i < 3 && !n->over && n->down; i++) {
		if (!node_up(n))
			continue;
		n->crash_at = UINT64_MAX;
		if (look(n) && sim->config.rough)
			node__rough_check(n);
	}
	history_check(sim->history);
}
