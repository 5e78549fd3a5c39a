/*
 * scsi_reserve: PERSISTENT RESERVE IN and OUT (SPC-4 6.15, 6.16), RESERVE and
 * RELEASE (SPC-2).  Here CDBs and lists are taken apart; the object's owner
 * decides, so that reservations hold on all nodes.
 */
#include "iscsi/scsi_int.h"

#include <stdio.h>
#include <strings.h>

enum { READ_KEYS, READ_RESERVATION, REPORT_CAPABILITIES, READ_FULL_STATUS };

#define TRANSPORT_IDS_MAX 32u
#define ISCSI_TRANSPORT 0x05u
#define ALL_REGISTRANTS(type) ((type) == 7 || (type) == 8)

/* ---- IN ---- */

bool scsi__pr_in_parse(struct scsi_cmd *cmd)
{
	cmd->dir = SCSI_DIR_IN;
	return true;
}

static size_t read_keys(const struct dom_reservation *r, uint8_t *d)
{
	for (unsigned i = 0; i < r->registrations_count; i++)
		put_be64(d + 8 + 8 * i, r->registrations[i].key);
	return 8 + 8 * (size_t)r->registrations_count;
}

static size_t read_reservation(const struct dom_reservation *r, uint8_t *d)
{
	if (!r->held)
		return 8;
	/* With all registrants as holders there is no one key. */
	if (!ALL_REGISTRANTS(r->type))
		put_be64(d + 8, r->registrations[r->holder].key);
	d[21] = r->type;
	return 24;
}

static size_t capabilities(const struct dom_reservation *r, uint8_t *d)
{
	put_be16(d, 8);
	d[2] = 0x08 | 0x04 | 0x01; /* SIP_C ATP_C PTPL_C */
	d[3] = 0x80 | (r->aptpl ? 1 : 0); /* TMV, PTPL_A */
	d[4] = 0xea; /* types 7, 6, 5, 3, 1 */
	d[5] = 0x01; /* type 8 */
	return 8;
}

static size_t transport_id(const char *port, uint8_t *p)
{
	size_t len = ROUND_UP(strlen(port) + 1, (size_t)4);

	len = MAX(len, 20u);
	memset(p, 0, 4 + len);
	p[0] = 0x40 | ISCSI_TRANSPORT;
	put_be16(p + 2, (uint16_t)len);
	strcpy((char *)p + 4, port);
	return 4 + len;
}

static size_t full_status(const struct dom_reservation *r, uint8_t *d)
{
	size_t len = 8;

	for (unsigned i = 0; i < r->registrations_count; i++) {
		const struct dom_registration *reg = &r->registrations[i];
		bool holder =
			r->held && (ALL_REGISTRANTS(r->type) || r->holder == i);
		uint8_t *p = d + len;
		size_t id;

		put_be64(p, reg->key);
		p[12] = (uint8_t)((reg->all_target_ports ? 2 : 0) |
				  (holder ? 1 : 0));
		p[13] = holder ? r->type : 0;
		put_be16(p + 18, reg->target_port);
		id = transport_id(reg->initiator_port, p + 24);
		put_be32(p + 20, (uint32_t)id);
		len += 24 + id;
	}
	return len;
}

void scsi__pr_in(struct scsi_cmd *cmd)
{
	const struct dom_reservation *r = dom_reservation(cmd->lun->object);
	size_t room = 32 + (size_t)r->registrations_count * (24 + 4 + 260);
	unsigned sa = cmd->cdb[1] & 0x1f;
	uint8_t *d = cmd->memory = calloc(1, room);
	size_t len = 0;

	if (d == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return;
	}
	switch (sa) {
	case READ_KEYS:
		len = read_keys(r, d);
		break;
	case READ_RESERVATION:
		len = read_reservation(r, d);
		break;
	case REPORT_CAPABILITIES:
		len = capabilities(r, d);
		break;
	default:
		len = full_status(r, d);
		break;
	}
	assert(len <= room);
	if (sa != REPORT_CAPABILITIES) {
		put_be32(d, r->generation);
		put_be32(d + 4, (uint32_t)(len - 8));
	}
	scsi__reply(cmd, d, len, get_be16(cmd->cdb + 7));
}

/* ---- OUT ---- */

/* What the parsed list needs until dom has answered. */
struct pr_request {
	struct dom_pr pr;
	struct scsi_tmf_req tmf;
	const char *ports[TRANSPORT_IDS_MAX];
	char names[TRANSPORT_IDS_MAX][256];
	const uint8_t *list; /* behind the victims */
	unsigned victims_count;
	struct dom_registration victims[]; /* of a PREEMPT AND ABORT */
};

bool scsi__pr_out_parse(struct scsi_cmd *cmd)
{
	unsigned sa = cmd->cdb[1] & 0x1f, type = cmd->cdb[2] & 0xf;
	uint32_t len = get_be32(cmd->cdb + 5);

	/*
	 * RELEASE has them for dom to compare, PREEMPT needs them only where it
	 * takes a reservation over (SPC-4 5.13.11.2.5); the others ignore them.
	 */
	if (sa == DOM_PR_RESERVE) {
		if (cmd->cdb[2] >> 4 != 0)
			return scsi__check_field(cmd, 2, 7);
		if (type != 1 && type != 3 && (type < 5 || type > 8))
			return scsi__check_field(cmd, 2, 3);
	}
	if (len < 24 || len > SCSI_LIST_MAX)
		return scsi__check(cmd, SENSE_LIST_LENGTH);
	cmd->dir = SCSI_DIR_OUT;
	cmd->transfer_len = len;
	return true;
}

static bool add_port(struct pr_request *req, const char *name)
{
	unsigned n = req->pr.initiator_ports_count;
	size_t i;

	if (n == TRANSPORT_IDS_MAX)
		return false;
	for (i = 0; name[i] != '\0'; i++)
		req->names[n][i] = name[i] >= 'A' && name[i] <= 'Z'
					   ? (char)(name[i] | 0x20)
					   : name[i];
	req->names[n][i] = '\0';
	req->ports[n] = req->names[n];
	req->pr.initiator_ports_count++;
	return true;
}

static bool has_port(const struct pr_request *req, const char *name)
{
	for (unsigned i = 0; i < req->pr.initiator_ports_count; i++)
		if (strcasecmp(req->ports[i], name) == 0)
			return true;
	return false;
}

/*
 * An initiator device (format 00b): its ports that are logged in, each once,
 * though it is a nexus at several ports of the target.
 */
static bool add_device(const struct scsi_target *target, struct pr_request *req,
		       const char *name)
{
	const struct scsi_nexus *nexus;
	size_t len = strlen(name);
	bool found = false;

	TAILQ_FOREACH (nexus, &target->nexuses, link) {
		const char *port = nexus->dom.initiator_port;

		if (strncasecmp(port, name, len) != 0 ||
		    strncmp(port + len, ",i,0x", 5) != 0)
			continue;
		found = true;
		if (!has_port(req, port) && !add_port(req, port))
			return false;
	}
	return found;
}

static bool is_port_name(const char *name)
{
	const char *isid = strstr(name, ",i,0x");

	return isid != NULL && isid != name && strlen(isid) == 17 &&
	       strspn(isid + 5, "0123456789abcdefABCDEF") == 12;
}

/*
 * One TransportID of at most @room bytes at @p (SPC-4 7.6.4.6).  Returns its
 * length; 0: it makes no sense, or names a port that nobody knows.
 */
static size_t parse_transport_id(const struct scsi_target *target,
				 struct pr_request *req, const uint8_t *p,
				 size_t room)
{
	char name[256];
	size_t len;

	if (room < 24 || (p[0] & 0x0f) != ISCSI_TRANSPORT)
		return 0;
	len = get_be16(p + 2);
	if (len < 20 || len % 4 != 0 || len > room - 4 || len > 244)
		return 0;
	memcpy(name, p + 4, len);
	name[len] = '\0';
	if (strlen(name) == len) /* no NUL */
		return 0;
	switch (p[0] >> 6) {
	case 0:
		return add_device(target, req, name) ? 4 + len : 0;
	case 1:
		return is_port_name(name) && add_port(req, name) ? 4 + len : 0;
	default:
		return 0;
	}
}

static bool parse_spec_i_pt(struct scsi_cmd *cmd, struct pr_request *req)
{
	const uint8_t *list = req->list;
	uint64_t len = cmd->transfer_len, at = 28, ids;

	if (len < 28)
		return scsi__check_param(cmd, SENSE_LIST_LENGTH, 24);
	ids = get_be32(list + 24);
	if (ids > len - 28)
		return scsi__check_param(cmd, SENSE_LIST_LENGTH, 24);
	while (ids > 0) {
		size_t n = parse_transport_id(cmd->target, req, list + at, ids);

		if (n == 0)
			return scsi__check_param(cmd, SENSE_INVALID_PARAM,
						 (unsigned)at);
		at += n;
		ids -= n;
	}
	return true;
}

static bool known_port(const struct scsi_target *target, uint16_t rtpi)
{
	for (unsigned i = 0; i < target->ports_count; i++)
		if (target->rtpi[i] == rtpi)
			return true;
	return false;
}

static bool parse_move(struct scsi_cmd *cmd, struct pr_request *req)
{
	const uint8_t *list = req->list;
	uint64_t ids = get_be32(list + 20);

	if (ids != cmd->transfer_len - 24 || ids == 0)
		return scsi__check_param(cmd, SENSE_LIST_LENGTH, 20);
	req->pr.unregister = (list[17] & 2) != 0;
	req->pr.aptpl = (list[17] & 1) != 0;
	req->pr.move_target_port = get_be16(list + 18);
	if (!known_port(cmd->target, req->pr.move_target_port))
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 18);
	if (parse_transport_id(cmd->target, req, list + 24, ids) != ids ||
	    req->pr.initiator_ports_count != 1)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 24);
	return true;
}

static bool parse_list(struct scsi_cmd *cmd, struct pr_request *req)
{
	unsigned sa = cmd->cdb[1] & 0x1f;
	const uint8_t *list = req->list;
	struct dom_pr *pr = &req->pr;

	pr->action = (enum dom_pr_action)sa;
	pr->type = cmd->cdb[2];
	pr->key = get_be64(list);
	pr->service_action_key = get_be64(list + 8);
	pr->initiator_ports = req->ports;
	if (sa == DOM_PR_REGISTER_AND_MOVE)
		return parse_move(cmd, req);
	pr->spec_i_pt = (list[20] & 8) != 0;
	pr->all_target_ports = (list[20] & 4) != 0;
	pr->aptpl = (list[20] & 1) != 0;
	if (pr->spec_i_pt && sa != DOM_PR_REGISTER)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 20);
	if (pr->spec_i_pt)
		return parse_spec_i_pt(cmd, req);
	if (cmd->transfer_len != 24)
		return scsi__check_param(cmd, SENSE_LIST_LENGTH, 0);
	return true;
}

/* By its ports, as registrations go: it may be at a unit of another target. */
static bool same_nexus(const struct dom_nexus *a, const struct dom_nexus *b)
{
	return a->target_port == b->target_port &&
	       strcmp(a->initiator_port, b->initiator_port) == 0;
}

static bool is_of(const struct dom_registration *reg,
		  const struct dom_nexus *nexus)
{
	return (reg->target_port == nexus->target_port ||
		reg->all_target_ports) &&
	       strcmp(reg->initiator_port, nexus->initiator_port) == 0;
}

/*
 * Whom a PREEMPT AND ABORT will hit: once it was done nothing tells that any
 * more.  Another one, on its way too, may hit the same.
 */
static void note_victims(struct pr_request *req,
			 const struct dom_reservation *r)
{
	uint64_t key = req->pr.service_action_key;

	for (unsigned i = 0; i < r->registrations_count; i++)
		if (key == 0 || r->registrations[i].key == key)
			req->victims[req->victims_count++] =
				r->registrations[i];
}

bool scsi__pr_hits(const struct scsi_cmd *preempt, const struct scsi_cmd *cmd)
{
	const struct pr_request *req = preempt->memory;

	if (same_nexus(&cmd->it->dom, &preempt->it->dom))
		return false;
	for (unsigned i = 0; i < req->victims_count; i++)
		if (is_of(&req->victims[i], &cmd->it->dom))
			return true;
	return false;
}

static void tasks_gone(struct scsi_tmf_req *tmf, unsigned response)
{
	scsi__done(tmf->data);
}

/* The type; but a REGISTER AND MOVE has none: there is nothing to move. */
static void bad_cdb(struct scsi_cmd *cmd)
{
	if ((cmd->cdb[1] & 0x1f) == DOM_PR_REGISTER_AND_MOVE)
		scsi__check_field(cmd, 1, 4);
	else
		scsi__check_field(cmd, 2, 3);
}

static void pr_done(struct dom_io *io, int status)
{
	bool own = status == -EINVAL || status == -ENOMEM;
	struct scsi_cmd *cmd = scsi__io_end(io, own ? 0 : status);
	struct pr_request *req;

	if (cmd == NULL)
		return;
	req = cmd->memory;
	if (status == -EINVAL && req->pr.action == DOM_PR_RELEASE)
		scsi__check(cmd, SENSE(5, 0x26, 0x04));
	else if (status == -EINVAL && io->bad_offset == DOM_PR_OF_CDB)
		bad_cdb(cmd);
	else if (status == -EINVAL)
		scsi__check_param(cmd, SENSE_INVALID_PARAM,
				  (unsigned)MIN(io->bad_offset, 0xffffu));
	else if (status == -ENOMEM)
		scsi__check(cmd, SENSE(5, 0x55, 0x04));
	else if (req->pr.action == DOM_PR_PREEMPT_AND_ABORT) {
		req->tmf.data = cmd;
		req->tmf.cb = tasks_gone;
		scsi__tmf_preempt(&req->tmf, cmd);
		return;
	}
	scsi__done(cmd);
}

void scsi__pr_out(struct scsi_cmd *cmd)
{
	const struct dom_reservation *r = dom_reservation(cmd->lun->object);
	bool aborts = (cmd->cdb[1] & 0x1f) == DOM_PR_PREEMPT_AND_ABORT;
	size_t victims = aborts ? r->registrations_count : 0;
	struct pr_request *req;
	uint8_t *list;

	req = calloc(1, sizeof(*req) + victims * sizeof(req->victims[0]) +
				cmd->transfer_len);
	if (req == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return;
	}
	cmd->memory = req;
	copied_add(COPIED_COMMAND, cmd->transfer_len);
	list = (uint8_t *)(req->victims + victims);
	sgl_read(cmd->data_out, 0, list, cmd->transfer_len);
	req->list = list;
	if (!parse_list(cmd, req)) {
		scsi__done(cmd);
		return;
	}
	if (aborts)
		note_victims(req, r);
	scsi__io(cmd,
		 dom_reserve(cmd->lun->object, &cmd->io, &req->pr, pr_done));
}

/* ---- RESERVE and RELEASE ---- */

bool scsi__spc2_parse(struct scsi_cmd *cmd)
{
	return true;
}

static void spc2_done(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = container_of(io, struct scsi_cmd, io);
	const struct dom_pr *pr = cmd->memory;

	if (status == 0 || status == -EPERM) { /* else it may do its work yet */
		cmd->it->reserving -= pr->action == DOM_SPC2_RESERVE;
		scsi__it_settle(cmd->it);
	}
	cmd = scsi__io_end(io, status);
	if (cmd != NULL)
		scsi__done(cmd);
}

void scsi__spc2(struct scsi_cmd *cmd)
{
	bool release = cmd->cdb[0] == 0x17 || cmd->cdb[0] == 0x57;
	struct dom_pr *pr = cmd->memory = calloc(1, sizeof(*pr));
	int rv;

	if (pr == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return;
	}
	pr->action = release ? DOM_SPC2_RELEASE : DOM_SPC2_RESERVE;
	rv = dom_reserve(cmd->lun->object, &cmd->io, pr, spc2_done);
	if (rv == 0 && !release) {
		cmd->it->reserving++;
		scsi__it_reserves(cmd->it);
	}
	scsi__io(cmd, rv);
}
