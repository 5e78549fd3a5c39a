/* scsi_rig: see the header. */
#include "tests/lib/scsi_rig.h"

#include "base/page.h"
#include "base/err.h"
#include "base/util.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>

size_t rig_got;

void rig_run(struct rig *rig)
{
	bool never = false;

	memenv_run(&rig->me, &never);
}

struct uuid rig_oid(unsigned lun)
{
	struct uuid oid;

	memset(oid.b, (int)lun + 1, sizeof(oid.b));
	oid.b[1] ^= 0x80; /* its halves differ: so do NAA names */
	oid.b[2] = 0;
	return oid;
}

int rig_lun(struct rig *rig, unsigned lun, uint64_t bytes, bool read_only)
{
	struct iscsi_lun_conf conf = {
		.lun = lun,
		.name = "disk",
		.block_bytes = rig->block,
		.read_only = read_only,
	};
	int rv;

	conf.object = rig_oid(lun);
	if (lun == 0)
		rig->oid = conf.object;
	rv = fake_dom_add(rig->dom, &conf.object, bytes);
	CHECK(rv == 0 || rv == -EEXIST);
	rv = scsi_lun_set(rig->target, &conf, rig->usage);
	rig_run(rig);
	return rv;
}

void rig_login(struct rig *rig, unsigned n)
{
	struct scsi_nexus *nexus = &rig->nexus[n];

	memset(nexus, 0, sizeof(*nexus));
	sprintf(nexus->dom.initiator_port,
		"iqn.2026-11.test:host%u,i,0x00023d00000%u", n, n);
	nexus->dom.target_port = (uint16_t)(1 + n % 2);
	sprintf(nexus->target_port_name, "iqn.2026-11.test:disk,t,0x%04x",
		nexus->dom.target_port);
	scsi_nexus_open(rig->target, nexus, false);
	rig->open[n] = true;
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

void rig_logout(struct rig *rig, unsigned n)
{
	bool done = false;

	scsi_nexus_close(&rig->nexus[n], on_closed, &done);
	rig->open[n] = false;
	CHECK(memenv_run(&rig->me, &done));
}

struct rig *rig_open(uint32_t block)
{
	static const uint16_t rtpi[] = { 1, 2 }, tpgt[] = { 1, 2 };
	struct rig *rig = calloc(1, sizeof(*rig));

	CHECK(rig != NULL);
	memenv_init(&rig->me, NULL, 0);
	rig->block = block;
	CHECK_EQ(fake_dom_open(&rig->me.loop.env, &rig->dom), 0);
	scsi_common_init(&rig->common);
	CHECK_EQ(scsi_target_open(&rig->me.loop.env, rig->dom, &rig->common,
				  "iqn.2026-11.test:disk", &rig->target),
		 0);
	rig->usage = scsi_usage_new();
	CHECK(rig->usage != NULL);
	scsi_target_ports(rig->target, rtpi, tpgt, 2);
	CHECK_EQ(rig_lun(rig, 0, RIG_BYTES, false), 0);
	for (unsigned n = 0; n < 2; n++) {
		rig_login(rig, n);
		CHECK_EQ(rig_tur(rig, n), RIG_SENSE(6, 0x29, 0));
		CHECK_EQ(rig_tur(rig, n), 0);
	}
	return rig;
}

void rig_close(struct rig *rig)
{
	bool done = false;

	for (unsigned n = 0; n < RIG_NEXUSES; n++)
		if (rig->open[n])
			rig_logout(rig, n);
	scsi_target_close(rig->target, on_closed, &done);
	CHECK(memenv_run(&rig->me, &done));
	done = false;
	dom_close(rig->dom, on_closed, &done);
	CHECK(memenv_run(&rig->me, &done));
	memenv_fini(&rig->me); /* asserts that all pages came home */
	CHECK_EQ(rig->usage->refs, 1);
	scsi_usage_put(rig->usage);
	free(rig);
}

static unsigned answer_of(const struct scsi_cmd *cmd)
{
	const uint8_t *s = cmd->sense;

	if (cmd->aborted)
		return RIG_SILENT;
	if (cmd->status == SCSI_GOOD)
		return 0;
	if (cmd->status != SCSI_CHECK_CONDITION)
		return RIG_STATUS(cmd->status);
	CHECK(cmd->sense_len >= 8 && cmd->sense_len <= SCSI_SENSE_MAX);
	if ((s[0] & 0x7f) == 0x72) {
		CHECK_EQ(s[7] + 8, cmd->sense_len);
		return RIG_SENSE(s[1], s[2], s[3]);
	}
	CHECK_EQ(s[0] & 0x7f, 0x70);
	CHECK_EQ(s[7] + 8, cmd->sense_len);
	return RIG_SENSE(s[2] & 0xf, s[12], s[13]);
}

static void on_done(struct scsi_cmd *cmd)
{
	struct rig_cmd *rc = container_of(cmd, struct rig_cmd, cmd);

	CHECK(!rc->done);
	rc->done = true;
	rc->answer = answer_of(cmd);
}

void rig_execute(struct rig_cmd *rc, const void *out, size_t out_len)
{
	struct scsi_cmd *cmd = &rc->cmd;
	size_t len = MIN(out_len, cmd->transfer_len);

	rc->executed = true;
	if (cmd->dir == SCSI_DIR_OUT && len > 0) {
		CHECK_EQ(sgl_new(rc->rig->me.loop.env.pages, PAGE_FRONT, len,
				 cmd->page_offset, &cmd->data_out),
			 0);
		sgl_write(cmd->data_out, 0, out, len);
	}
	scsi_cmd_execute(cmd);
	CHECK(!rc->done); /* never inside the submitting call */
}

void rig_begin(struct rig *rig, struct rig_cmd *rc, unsigned n,
	       const uint8_t *cdb, const void *out, size_t out_len,
	       size_t in_len, enum scsi_attr attr, bool hold)
{
	struct scsi_cmd *cmd = &rc->cmd;

	memset(rc, 0, sizeof(*rc));
	rc->rig = rig;
	cmd->nexus = &rig->nexus[n];
	cmd->lun_field = (uint64_t)rig->lun << 48;
	memcpy(cmd->cdb, cdb, 16);
	cmd->cdb_len = 16;
	cmd->attr = attr;
	cmd->done = on_done;
	cmd->expect = out_len > 0  ? SCSI_DIR_OUT
		      : in_len > 0 ? SCSI_DIR_IN
				   : SCSI_DIR_NONE;
	cmd->edtl = (uint32_t)(out_len > 0 ? out_len : in_len);
	rc->begun = scsi_cmd_begin(cmd);
	if (!rc->begun) {
		rc->done = true;
		rc->answer = answer_of(cmd);
	} else if (!hold) {
		rig_execute(rc, out, out_len);
	}
}

void rig_end(struct rig_cmd *rc)
{
	sgl_put(rc->cmd.data_out);
	rc->cmd.data_out = NULL;
	scsi_cmd_end(&rc->cmd);
}

unsigned rig_do(struct rig *rig, unsigned n, const uint8_t *cdb,
		const void *out, size_t out_len, void *in, size_t in_len)
{
	struct rig_cmd *rc = malloc(sizeof(*rc));
	unsigned answer;

	rig_begin(rig, rc, n, cdb, out, out_len, in_len, SCSI_SIMPLE, false);
	if (!rc->done)
		CHECK(memenv_run(&rig->me, &rc->done));
	rig_got = rc->cmd.data_in_len;
	CHECK(rig_got <= in_len);
	if (rig_got > 0)
		sgl_read(rc->cmd.data_in, 0, in, rig_got);
	answer = rc->answer;
	rig_end(rc);
	free(rc);
	return answer;
}

unsigned rig_tur(struct rig *rig, unsigned n)
{
	return rig_do(rig, n, CDB(0), NULL, 0, NULL, 0);
}

static void cdb16(uint8_t *cdb, uint8_t op, uint64_t lba, uint32_t blocks)
{
	memset(cdb, 0, 16);
	cdb[0] = op;
	put_be64(cdb + 2, lba);
	put_be32(cdb + 10, blocks);
}

unsigned rig_write(struct rig *rig, unsigned n, uint64_t lba, uint32_t blocks,
		   uint8_t fill)
{
	size_t len = (size_t)blocks * rig->block;
	uint8_t *buf = malloc(len + 1), cdb[16];
	unsigned answer;

	memset(buf, fill, len);
	cdb16(cdb, 0x8a, lba, blocks);
	answer = rig_do(rig, n, cdb, buf, len, NULL, 0);
	free(buf);
	return answer;
}

unsigned rig_read(struct rig *rig, unsigned n, uint64_t lba, uint32_t blocks,
		  uint8_t fill)
{
	size_t len = (size_t)blocks * rig->block;
	uint8_t *buf = malloc(len + 1), cdb[16];
	unsigned answer;

	cdb16(cdb, 0x88, lba, blocks);
	answer = rig_do(rig, n, cdb, NULL, 0, buf, len);
	if (answer == 0) {
		CHECK_EQ(rig_got, len);
		for (size_t i = 0; i < len; i += rig->block)
			CHECK_EQ(buf[i], fill);
	}
	free(buf);
	return answer;
}

struct waiter {
	struct scsi_tmf_req req;
	bool done;
	unsigned response;
};

static void on_tmf(struct scsi_tmf_req *req, unsigned response)
{
	struct waiter *w = container_of(req, struct waiter, req);

	w->done = true;
	w->response = response;
}

unsigned rig_tmf(struct rig *rig, unsigned n, enum scsi_tmf function,
		 unsigned lun)
{
	struct waiter w = { .req = { .function = function,
				     .lun_field = (uint64_t)lun << 48,
				     .nexus = &rig->nexus[n],
				     .cb = on_tmf } };

	scsi_tmf(&w.req);
	CHECK(!w.done);
	CHECK(memenv_run(&rig->me, &w.done));
	return w.response;
}
