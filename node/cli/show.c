/* show: answers as people read them. */
#include "base/size.h"
#include "base/util.h"
#include "node/cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define HEADS(...)                                                             \
	static const char *const heads[] = { __VA_ARGS__ };                    \
	struct columns *c = columns_open(heads, ARRAY_LEN(heads))

static void cell_size(struct columns *c, uint64_t bytes)
{
	char text[SIZE_TEXT_MAX];

	columns_cell(c, "%s", size_format(bytes, text));
}

static const char *when(uint64_t wall_ns, char out[32])
{
	time_t t = (time_t)(wall_ns / 1000000000u);
	struct tm tm;

	if (wall_ns == 0)
		return "-";
	localtime_r(&t, &tm);
	strftime(out, 32, "%Y-%m-%d %H:%M:%S", &tm);
	return out;
}

static void show_done(const Admin__Done *m)
{
	printf("%s\n", m->what);
	for (size_t i = 0; i < m->n_notes; i++)
		printf("%s\n", m->notes[i]);
}

static void line_size(const char *label, uint64_t bytes)
{
	char text[SIZE_TEXT_MAX];

	printf("  %-10s %8s\n", label, size_format(bytes, text));
}

static void show_space(const Admin__ClusterStatus *m)
{
	const Admin__Space *s = m->space;

	line_size("raw", s->raw_bytes);
	line_size("usable", m->usable_bytes);
	line_size("used", s->used_bytes);
	line_size("reserved", s->reserved_bytes);
	line_size("kept", s->kept_bytes);
	line_size("free", s->free_bytes);
	line_size("vdisk size", m->provisioned_bytes);
}

static void show_status(const Admin__ClusterStatus *m)
{
	if (strcmp(m->state, "none") == 0) {
		printf("node %s (%s) is in no cluster yet\n"
		       "Next: basalt cluster init --name NAME\n",
		       m->node, m->node_id);
		return;
	}
	if (strcmp(m->state, "up") != 0) {
		printf("node %s (%s): %s\n", m->node, m->node_id, m->state);
		return;
	}
	printf("cluster %s (%s)\n", m->name, m->id);
	printf("  node       %s (%s), basaltd %s, up %llu s\n", m->node,
	       m->node_id, m->version, (unsigned long long)m->uptime_seconds);
	printf("  directory  revision %llu, %u voter%s, %s\n",
	       (unsigned long long)m->directory_revision, m->voters,
	       m->voters == 1 ? "" : "s",
	       m->leader ? "this node leads" : "another node leads");
	printf("  portals   ");
	for (size_t i = 0; i < m->n_portals; i++)
		printf(" %s", m->portals[i]);
	if (m->n_portals == 0)
		printf(" none is served now");
	printf("\n  disks      %u, %u online\n", m->disks, m->disks_online);
	printf("  vdisks     %u, %s, %u unavailable\n", m->vdisks,
	       m->compliance, m->vdisks_unavailable);
	printf("  targets    %u, %u session%s\n", m->targets, m->sessions,
	       m->sessions == 1 ? "" : "s");
	if (m->scrub_days > 0)
		printf("  scrubs     every %u day%s\n", m->scrub_days,
		       m->scrub_days == 1 ? "" : "s");
	else
		printf("  scrubs     off\n");
	printf("  health     %s%s\n", m->health,
	       strcmp(m->health, "ok") == 0 ? "" : " (basalt health)");
	printf("space\n");
	if (m->space != NULL)
		show_space(m);
}

/* The blocks that a scrub has found. */
static void show_scrub(const Admin__DiskInfo *d)
{
	for (size_t i = 0; i < d->n_bad_blocks; i++) {
		const Admin__BadBlock *b = d->bad_blocks[i];

		if (b->vdisk[0] != '\0')
			printf("%s: bad block of virtual disk %s at byte "
			       "%llu\n",
			       d->path, b->vdisk,
			       (unsigned long long)b->offset);
		else
			printf("%s: bad block of object %s, which no virtual "
			       "disk has now\n",
			       d->path, b->object);
	}
	if (d->scrubbed_bad > 0 && d->n_bad_blocks == 0)
		printf("%s: which these were is in basaltd's log, and another "
		       "scrub tells it\n",
		       d->path);
	else if (d->scrubbed_bad > d->n_bad_blocks)
		printf("%s: and %llu more\n", d->path,
		       (unsigned long long)(d->scrubbed_bad - d->n_bad_blocks));
}

static void show_disks(const Admin__DiskInfos *m)
{
	char at[32];

	HEADS("ID", "NODE", "PATH", "STATE", "HEALTH", "<RAW", "<USED", "<KEPT",
	      "<RESERVED", "<FREE", "SCRUBBED", "MODEL", "SERIAL");

	for (size_t i = 0; i < m->n_disks; i++) {
		const Admin__DiskInfo *d = m->disks[i];

		columns_cell(c, "%.8s", d->id);
		columns_cell(c, "%s", d->node);
		columns_cell(c, "%s", d->path);
		if (strcmp(d->state, "opening") == 0)
			columns_cell(c, "opening %u %%", d->opening_percent);
		else
			columns_cell(c, "%s", d->state);
		columns_cell(c, "%s", d->health);
		cell_size(c, d->space->raw_bytes);
		cell_size(c, d->space->used_bytes);
		cell_size(c, d->space->kept_bytes);
		cell_size(c, d->space->reserved_bytes);
		cell_size(c, d->space->free_bytes);
		if (d->scrubbing)
			columns_cell(c, "now, %u %%", d->scrub_percent);
		else
			columns_cell(c, "%.10s", when(d->scrubbed_wall_ns, at));
		columns_cell(c, "%s", d->model);
		columns_cell(c, "%s", d->serial);
	}
	columns_print(c);
	for (size_t i = 0; i < m->n_disks; i++)
		if (m->disks[i]->failure[0] != '\0')
			printf("%s: %s\n", m->disks[i]->path,
			       m->disks[i]->failure);
	for (size_t i = 0; i < m->n_disks; i++)
		show_scrub(m->disks[i]);
	for (size_t i = 0; i < m->n_disks; i++)
		if (m->disks[i]->waits_for[0] != '\0')
			printf("%s waits for %s\n", m->disks[i]->path,
			       m->disks[i]->waits_for);
	for (size_t i = 0; i < m->n_disks; i++)
		if (m->disks[i]->fix[0] != '\0')
			printf("%s: %s\n", m->disks[i]->path, m->disks[i]->fix);
}

static void show_policies(const Admin__Policies *m)
{
	HEADS("NAME", "<FTT", "METHOD", "<STRIPES", "<RESERVE", "<IOPS",
	      "FORCED", "<VDISKS");

	for (size_t i = 0; i < m->n_policies; i++) {
		const Admin__Policy *p = m->policies[i];

		columns_cell(c, "%s", p->name);
		columns_cell(c, "%u", p->ftt);
		columns_cell(c, "%s", p->method);
		columns_cell(c, "%u", p->stripe_width);
		columns_cell(c, "%u%%", p->reserve_percent);
		if (p->iops_limit > 0)
			columns_cell(c, "%llu",
				     (unsigned long long)p->iops_limit);
		else
			columns_cell(c, "no limit");
		columns_cell(c, "%s", p->force_provision ? "yes" : "no");
		columns_cell(c, "%u", p->vdisks);
	}
	columns_print(c);
}

/* As many as fit, each one whole. */
static void exports_text(const Admin__Vdisk *v, char *out, size_t len)
{
	char lun[128], more[32];
	size_t n = 0;

	out[0] = '\0';
	for (size_t i = 0; i < v->n_luns; i++) {
		snprintf(lun, sizeof(lun), "%s%s/%u", i ? " " : "",
			 v->luns[i]->target, v->luns[i]->lun);
		snprintf(more, sizeof(more), " and %zu more", v->n_luns - i);
		if (n + strlen(lun) + sizeof(more) > len) {
			strcpy(out + n, more);
			return;
		}
		n += (size_t)sprintf(out + n, "%s", lun);
	}
}

static void show_vdisks(const Admin__Vdisks *m)
{
	HEADS("NAME", "<SIZE", "<RAW", "<USED", "<RESERVED", "<KEPT", "<FREE",
	      "<BLOCK", "POLICY", "COMPLIANCE", "HEALTH", "<SESSIONS",
	      "EXPORTED");

	for (size_t i = 0; i < m->n_vdisks; i++) {
		const Admin__Vdisk *v = m->vdisks[i];
		char text[300];

		columns_cell(c, "%s", v->name);
		cell_size(c, v->size_bytes);
		cell_size(c, v->space->raw_bytes);
		columns_cell(c, "%s%s",
			     !v->space_known ? "?"
			     : v->used_exact ? ""
					     : "<=",
			     !v->space_known
				     ? ""
				     : size_format(v->space->used_bytes, text));
		cell_size(c, v->space->reserved_bytes);
		if (v->space_known) {
			cell_size(c, v->space->kept_bytes);
			cell_size(c, v->space->free_bytes);
		} else {
			columns_cell(c, "?");
			columns_cell(c, "?");
		}
		columns_cell(c, "%u", v->block_bytes);
		columns_cell(c, "%s", v->policy);
		columns_cell(c, "%s", v->compliant ? "compliant" : "NOT");
		columns_cell(c, "%s", v->health);
		columns_cell(c, "%u", v->sessions);
		exports_text(v, text, sizeof(text));
		columns_cell(c, "%s", text);
	}
	columns_print(c);
	for (size_t i = 0; i < m->n_vdisks; i++)
		if (!m->vdisks[i]->compliant)
			printf("%s is not compliant: %s\n", m->vdisks[i]->name,
			       m->vdisks[i]->compliance);
}

static void show_vdisk(const Admin__VdiskDetails *m)
{
	const Admin__Vdisk *v = m->vdisk;
	char text[SIZE_TEXT_MAX], at[32];

	printf("virtual disk %s\n", v->name);
	printf("  object      %s\n", v->object);
	printf("  size        %s, blocks of %u bytes\n",
	       size_format(v->size_bytes, text), v->block_bytes);
	printf("  policy      %s, %s\n",
	       v->policy[0] ? v->policy : "none (one copy)", v->compliance);
	printf("  health      %s\n", v->health);
	printf("  raw         %s\n", size_format(v->space->raw_bytes, text));
	if (v->space_known)
		printf("  used        %s%s\n", v->used_exact ? "" : "at most ",
		       size_format(v->space->used_bytes, text));
	printf("  reserved    %s\n",
	       size_format(v->space->reserved_bytes, text));
	if (v->space_known) {
		printf("  kept        %s, reserved and not used\n",
		       size_format(v->space->kept_bytes, text));
		printf("  free        %s\n",
		       size_format(v->space->free_bytes, text));
	}
	printf("  sessions    %u\n", v->sessions);
	printf("  created     %s\n", when(v->created_wall_ns, at));
	for (size_t i = 0; i < v->n_luns; i++)
		printf("  exported    %s, LUN %u%s\n", v->luns[i]->iqn,
		       v->luns[i]->lun,
		       v->luns[i]->read_only ? ", read-only" : "");
	for (size_t i = 0; i < m->n_commands; i++)
		printf("\n# %s\n%s\n", m->commands[i]->use,
		       m->commands[i]->text);
}

static void show_target(const Admin__Target *t)
{
	printf("target %s\n  iqn         %s\n", t->name, t->iqn);
	printf("  allow      ");
	for (size_t i = 0; i < t->n_allow; i++)
		printf(" %s", t->allow[i]);
	printf("%s\n", t->n_allow > 0		 ? ""
		       : t->chap_user[0] != '\0' ? " everybody with CHAP"
						 : " nobody");
	printf("  CHAP        %s%s%s\n", t->chap_user[0] ? t->chap_user : "no",
	       t->mutual_user[0] ? ", mutual " : "", t->mutual_user);
	printf("  portals    ");
	for (size_t i = 0; i < t->n_portals; i++)
		printf(" %s", t->portals[i]);
	if (t->n_portals == 0)
		printf(" none is served now");
	printf("\n  sessions    %u\n", t->sessions);
	for (size_t i = 0; i < t->n_luns; i++)
		printf("  LUN %-6u  %s%s\n", t->luns[i]->lun, t->luns[i]->vdisk,
		       t->luns[i]->read_only ? ", read-only" : "");
}

static void target_row(struct columns *c, const Admin__Target *t)
{
	columns_cell(c, "%s", t->name);
	columns_cell(c, "%s", t->iqn);
	columns_cell(c, "%zu", t->n_luns);
	if (t->n_allow == 0)
		columns_cell(c, "%s", t->chap_user[0] ? "with CHAP" : "nobody");
	else if (t->n_allow == 1)
		columns_cell(c, "%s", t->allow[0]);
	else
		columns_cell(c, "%zu initiators", t->n_allow);
	columns_cell(c, "%s%s", t->chap_user,
		     t->mutual_user[0] ? " (mutual)" : "");
	columns_cell(c, "%u", t->sessions);
}

static void show_targets(const Admin__Targets *m)
{
	HEADS("NAME", "IQN", "<LUNS", "ADMITS", "CHAP", "<SESSIONS");

	for (size_t i = 0; i < m->n_targets; i++)
		target_row(c, m->targets[i]);
	columns_print(c);
}

static void show_luns(const Admin__Luns *m)
{
	HEADS("TARGET", "<LUN", "VDISK", "<SIZE", "<BLOCK", "ACCESS");

	for (size_t i = 0; i < m->n_luns; i++) {
		columns_cell(c, "%s", m->luns[i]->target);
		columns_cell(c, "%u", m->luns[i]->lun);
		columns_cell(c, "%s", m->luns[i]->vdisk);
		cell_size(c, m->luns[i]->size_bytes);
		columns_cell(c, "%u", m->luns[i]->block_bytes);
		columns_cell(c, "%s",
			     m->luns[i]->read_only ? "read-only"
						   : "read-write");
	}
	columns_print(c);
}

static void show_sessions(const Admin__Sessions *m)
{
	static const char *const heads[] = {
		"<ID",	  "INITIATOR", "TARGET",     "PEER",
		"PORTAL", "BY",	       "<AGE",	     "<COMMANDS",
		"<READ",  "<WRITTEN",  "<IN FLIGHT", "<SHARD"
	};
	/* Where there is one shard, its column would say nothing. */
	bool several = m->shards > 1;
	struct columns *c = columns_open(heads, ARRAY_LEN(heads) - !several);

	for (size_t i = 0; i < m->n_sessions; i++) {
		const Admin__Session *s = m->sessions[i];

		columns_cell(c, "%llu", (unsigned long long)s->id);
		columns_cell(c, "%s", s->initiator);
		columns_cell(c, "%s", s->discovery ? "(discovery)" : s->target);
		columns_cell(c, "%s", s->peer);
		columns_cell(c, "%s", s->local);
		columns_cell(c, "%s", s->transport);
		columns_cell(c, "%llus", (unsigned long long)s->age_seconds);
		columns_cell(c, "%llu", (unsigned long long)s->commands);
		cell_size(c, s->read_bytes);
		cell_size(c, s->written_bytes);
		columns_cell(c, "%u", s->in_flight);
		if (several)
			columns_cell(c, "%u", s->shard);
	}
	columns_print(c);
}

static void show_portals(const Admin__Portals *m)
{
	HEADS("<NO", "PORTAL", "TRANSPORT", "TCP", "ISER", "WHY NOT");

	for (size_t i = 0; i < m->n_portals; i++) {
		const Admin__PortalInfo *p = m->portals[i];

		columns_cell(c, "%u", p->number);
		columns_cell(c, "%s", p->address);
		columns_cell(c, "%s", p->transport);
		columns_cell(c, "%s", p->tcp ? "yes" : "no");
		columns_cell(c, "%s", p->iser ? "yes" : "no");
		columns_cell(c, "%s", p->why);
	}
	columns_print(c);
}

static void show_tree(const Admin__ObjectNode *n, unsigned depth)
{
	char text[SIZE_TEXT_MAX];

	if (n == NULL)
		return;
	printf("%*s%s %s", (int)(2 + 2 * depth), "", n->type,
	       size_format(n->size_bytes, text));
	if (n->stripe_unit_bytes > 0)
		printf(", stripe unit %s",
		       size_format(n->stripe_unit_bytes, text));
	if (n->component[0] != '\0')
		printf(", %s%s on %s of node %s (%s)", n->state,
		       n->created ? "" : ", not made yet", n->disk_path,
		       n->node, n->component);
	printf("\n");
	if (n->damaged)
		printf("%*sDAMAGED: its log lost batches; blocks that were "
		       "not written since answer medium errors.\n"
		       "%*sWrite them again, from a backup, or move to a new "
		       "virtual disk; basalt health says more.\n",
		       (int)(4 + 2 * depth), "", (int)(4 + 2 * depth), "");
	for (size_t i = 0; i < n->n_children; i++)
		show_tree(n->children[i], depth + 1);
}

static void show_object(const Admin__ObjectInfo *m)
{
	char text[SIZE_TEXT_MAX];

	printf("object %s of virtual disk %s\n", m->id, m->vdisk);
	printf("  size        %s\n", size_format(m->size_bytes, text));
	printf("  policy      %s, %s%s\n",
	       m->policy[0] ? m->policy : "none (one copy)", m->compliance,
	       m->forced ? ", placed by force" : "");
	printf("  health      %s\n", m->health);
	printf("  owner       %s\n", m->owner[0] ? m->owner : "none");
	printf("  epochs      csn %llu, oepoch %u\n",
	       (unsigned long long)m->csn, m->oepoch);
	printf("  reserved    %s\n", size_format(m->reserved_bytes, text));
	show_tree(m->tree, 0);
}

static void show_strays(const Admin__Strays *m)
{
	HEADS("OBJECT", "COMPONENT", "DISK", "<SIZE", "<USED", "THE DIRECTORY",
	      "VDISK");

	for (size_t i = 0; i < m->n_components; i++) {
		const Admin__Stray *s = m->components[i];
		char text[SIZE_TEXT_MAX];

		columns_cell(c, "%s", s->object);
		columns_cell(c, "%s", s->component);
		columns_cell(c, "%s", s->disk_path);
		cell_size(c, s->size_bytes);
		columns_cell(c, "%s%s", s->used_exact ? "" : "<=",
			     size_format(s->used_bytes, text));
		columns_cell(c, "%s",
			     strcmp(s->directory, "older") == 0
				     ? "has an older layout"
				     : "has nothing of it");
		columns_cell(c, "%s", s->vdisk);
	}
	columns_print(c);
	for (size_t i = 0; i < m->n_away; i++)
		printf("disk %s is not in service: what is on it is not "
		       "listed\n",
		       m->away[i]);
}

static void show_health(const Admin__Healths *m)
{
	HEADS("CHECK", "LEVEL", "CAUSE");

	for (size_t i = 0; i < m->n_checks; i++) {
		columns_cell(c, "%s", m->checks[i]->name);
		columns_cell(c, "%s", m->checks[i]->level);
		columns_cell(c, "%s", m->checks[i]->cause);
	}
	columns_print(c);
	for (size_t i = 0; i < m->n_checks; i++)
		if (m->checks[i]->fix[0] != '\0')
			printf("%s: %s\n", m->checks[i]->name,
			       m->checks[i]->fix);
	printf("health: %s\n", m->worst);
}

static void show_events(const Admin__Events *m)
{
	HEADS("<NO", "WHEN", "WHO", "WHAT");
	char at[32];

	for (size_t i = 0; i < m->n_events; i++) {
		const Admin__Event *e = m->events[i];

		columns_cell(c, "%llu", (unsigned long long)e->sequence);
		columns_cell(c, "%s", when(e->wall_ns, at));
		columns_cell(c, "%s", e->who);
		columns_cell(c, "%s", e->what);
	}
	columns_print(c);
}

static void show_levels(const Admin__LogLevels *m)
{
	HEADS("ROOM", "LEVEL");

	for (size_t i = 0; i < m->n_rooms; i++) {
		columns_cell(c, "%s", m->rooms[i]->room);
		columns_cell(c, "%s", m->rooms[i]->level);
	}
	columns_print(c);
}

/* "870 us", "12.3 ms", "2.41 s": three digits */
static void cell_ns(struct columns *c, uint64_t ns)
{
	static const char *const unit[] = { "us", "ms", "s" };
	double n = (double)ns / 1e3;
	unsigned i = 0;

	for (; n >= 999.5 && i + 1 < ARRAY_LEN(unit); i++)
		n /= 1e3;
	columns_cell(c, "%.*f %s",
		     n < 9.995	 ? 2
		     : n < 99.95 ? 1
				 : 0,
		     n, unit[i]);
}

static void show_latencies(const Admin__Latencies *m)
{
	HEADS("STAGE", "<COUNT", "<MEAN", "<P50", "<P99", "<P99.9", "<MAX",
	      "WHAT");

	for (size_t i = 0; i < m->n_stages; i++) {
		const Admin__Latency *l = m->stages[i];
		const uint64_t ns[] = { l->mean_ns, l->p50_ns, l->p99_ns,
					l->p999_ns, l->max_ns };

		columns_cell(c, "%s", l->stage);
		columns_cell(c, "%llu", (unsigned long long)l->count);
		for (size_t k = 0; k < ARRAY_LEN(ns); k++) {
			if (l->count > 0)
				cell_ns(c, ns[k]);
			else
				columns_cell(c, "-");
		}
		columns_cell(c, "%s", l->help);
	}
	columns_print(c);
}

static void cell_rate(struct columns *c, uint64_t count, double seconds)
{
	double n = (double)count / seconds;
	bool whole = n == (double)(uint64_t)n; /* what was counted is */

	columns_cell(c, "%.*f", n < 9.95 && !whole ? 1 : 0, n);
}

/* Of one direction: how many, how much, how long. */
static void cells_times(struct columns *c, const Admin__Times *t,
			uint64_t bytes, double seconds)
{
	cell_rate(c, t->count, seconds);
	cell_size(c, (uint64_t)((double)bytes / seconds));
	if (t->count > 0) {
		cell_ns(c, t->mean_ns);
		cell_ns(c, t->p99_ns);
	} else {
		columns_cell(c, "-");
		columns_cell(c, "-");
	}
}

static void show_stats(const struct cli_call *call, const Admin__VdiskStats *m)
{
	static const char *const rates[] = {
		"VDISK", "<READS/S",  "<READ/S",  "<MEAN",
		"<P99",	 "<WRITES/S", "<WRITE/S", "<MEAN",
		"<P99",	 "<LOAD",     "<FAILED"
	};
	static const char *const totals[] = { "VDISK",	   "<READS", "<READ",
					      "<MEAN",	   "<P99",   "<WRITES",
					      "<WRITTEN",  "<MEAN",  "<P99",
					      "<SESSIONS", "<FAILED" };
	bool rate = m->elapsed_ns > 0;
	double seconds = rate ? (double)m->elapsed_ns / 1e9 : 1;
	struct columns *c =
		columns_open(rate ? rates : totals, ARRAY_LEN(rates));
	unsigned idle = 0;

	for (size_t i = 0; i < m->n_vdisks; i++) {
		const Admin__VdiskStat *v = m->vdisks[i];
		double busy_ns =
			(double)v->read->count * (double)v->read->mean_ns +
			(double)v->write->count * (double)v->write->mean_ns;

		if (call->args_count == 0 && v->failed + v->unmaps == 0 &&
		    v->read->count + v->write->count == 0) {
			idle++;
			continue;
		}
		columns_cell(c, "%s", v->vdisk);
		cells_times(c, v->read, v->read_bytes, seconds);
		cells_times(c, v->write, v->written_bytes, seconds);
		if (rate)
			columns_cell(c, "%.1f", busy_ns / 1e9 / seconds);
		else
			columns_cell(c, "%u", v->sessions);
		columns_cell(c, "%llu", (unsigned long long)v->failed);
	}
	columns_print(c);
	if (idle > 0)
		printf("%u %s did nothing\n", idle,
		       idle == 1 ? "virtual disk" : "virtual disks");
}

void cli_show(const struct cli_call *call, const Admin__Response *r)
{
	switch (r->result_case) {
	case ADMIN__RESPONSE__RESULT_OK:
		show_done(r->ok);
		break;
	case ADMIN__RESPONSE__RESULT_CLUSTER_STATUS:
		show_status(r->cluster_status);
		break;
	case ADMIN__RESPONSE__RESULT_DISKS:
		show_disks(r->disks);
		break;
	case ADMIN__RESPONSE__RESULT_POLICIES:
		show_policies(r->policies);
		break;
	case ADMIN__RESPONSE__RESULT_VDISKS:
		show_vdisks(r->vdisks);
		break;
	case ADMIN__RESPONSE__RESULT_VDISK:
		show_vdisk(r->vdisk);
		break;
	case ADMIN__RESPONSE__RESULT_TARGETS:
		if (call->command->args_max == 1 && r->targets->n_targets == 1)
			show_target(r->targets->targets[0]);
		else
			show_targets(r->targets);
		break;
	case ADMIN__RESPONSE__RESULT_LUNS:
		show_luns(r->luns);
		break;
	case ADMIN__RESPONSE__RESULT_SESSIONS:
		show_sessions(r->sessions);
		break;
	case ADMIN__RESPONSE__RESULT_PORTALS:
		show_portals(r->portals);
		break;
	case ADMIN__RESPONSE__RESULT_OBJECT:
		show_object(r->object);
		break;
	case ADMIN__RESPONSE__RESULT_STRAYS:
		show_strays(r->strays);
		break;
	case ADMIN__RESPONSE__RESULT_HEALTH:
		show_health(r->health);
		break;
	case ADMIN__RESPONSE__RESULT_METRICS:
		fputs(r->metrics->text, stdout);
		break;
	case ADMIN__RESPONSE__RESULT_LATENCIES:
		show_latencies(r->latencies);
		break;
	case ADMIN__RESPONSE__RESULT_VDISK_STATS:
		show_stats(call, r->vdisk_stats);
		break;
	case ADMIN__RESPONSE__RESULT_EVENTS:
		show_events(r->events);
		break;
	case ADMIN__RESPONSE__RESULT_LOG_LEVELS:
		show_levels(r->log_levels);
		break;
	default:
		printf("done\n");
	}
}
