/*
 * scsi_inquiry: what a unit is: INQUIRY and its VPD pages (SPC-4 6.6, 7.8),
 * REPORT LUNS, READ CAPACITY.
 */
#include "iscsi/scsi_int.h"

#include <stdio.h>

#define VENDOR "BASALT  "
#define PRODUCT "VIRTUAL-DISK    "
#define REVISION "0001"
#define NO_UNIT 0x7f /* qualifier 3, type 1f: nothing can be here */

bool scsi__inquiry_parse(struct scsi_cmd *cmd)
{
	cmd->dir = SCSI_DIR_IN;
	if ((cmd->cdb[1] & 1) == 0 && cmd->cdb[2] != 0)
		return scsi__check_field(cmd, 2, -1);
	return true;
}

static void standard(struct scsi_cmd *cmd)
{
	static const uint16_t versions[] = {
		0x00a0, /* SAM-5 */
		0x0460, /* SPC-4 */
		0x04c0, /* SBC-3 */
		0x0960, /* iSCSI */
	};
	uint8_t d[96] = { 0 };

	d[0] = cmd->lun != NULL ? 0 : NO_UNIT;
	d[2] = 6; /* SPC-4 */
	d[3] = 0x12; /* HISUP, format 2 */
	d[4] = sizeof(d) - 5;
	d[5] = 0x10 | 0x08; /* TPGS: implicit; 3PC */
	d[6] = 0x10; /* MULTIP */
	d[7] = 0x02; /* CMDQUE */
	memcpy(d + 8, VENDOR, 8);
	memcpy(d + 16, PRODUCT, 16);
	memcpy(d + 32, REVISION, 4);
	for (size_t i = 0; i < ARRAY_LEN(versions); i++)
		put_be16(d + 58 + 2 * i, versions[i]);
	scsi__reply(cmd, d, sizeof(d), get_be16(cmd->cdb + 3));
}

/* ---- VPD: each fills in what follows the four bytes of the header ---- */

static void serial(const struct scsi_lun *lun, char out[33])
{
	for (unsigned i = 0; i < 16; i++)
		sprintf(out + 2 * i, "%02x", lun->oid.b[i]);
}

static size_t vpd_serial(struct scsi_cmd *cmd, uint8_t *p)
{
	char text[33];

	serial(cmd->lun, text);
	memcpy(p, text, 32);
	return 32;
}

static size_t designator(uint8_t *p, unsigned code_set, unsigned type,
			 const void *data, size_t len)
{
	p[0] = (uint8_t)code_set;
	p[1] = (uint8_t)type;
	p[2] = 0;
	p[3] = (uint8_t)len;
	memcpy(p + 4, data, len);
	return 4 + len;
}

/* NUL ended and padded to four bytes (SPC-4 7.8.5.10). */
static size_t designator_name(uint8_t *p, unsigned code_set, unsigned type,
			      const char *name)
{
	char text[256] = { 0 };
	size_t len = strnlen(name, sizeof(text) - 4);

	memcpy(text, name, len);
	return designator(p, code_set, type, text,
			  ROUND_UP(len + 1, (size_t)4));
}

#define ASSOC_PORT 0x10u
#define ASSOC_TARGET 0x20u
#define PIV 0x80u
#define ISCSI_PROTOCOL 0x50u

/* NAA 3 is locally assigned: 60 bits of the object's id. */
void scsi_naa(const struct uuid *object, uint8_t out[SCSI_NAA_BYTES])
{
	put_be64(out, get_be64(object->b) ^ get_be64(object->b + 8));
	out[0] = (uint8_t)(0x30 | (out[0] & 0x0f));
}

/*
 * The unit's names come from the object alone: the same on every portal and
 * node, for ever.
 */
static size_t vpd_identification(struct scsi_cmd *cmd, uint8_t *p)
{
	const struct scsi_lun *lun = cmd->lun;
	char text[64];
	uint8_t naa[SCSI_NAA_BYTES], word[4] = { 0 };
	uint8_t *start = p;

	scsi_naa(&lun->oid, naa);
	p += designator(p, 1, 3, naa, sizeof(naa));

	memcpy(text, VENDOR, 8);
	serial(lun, text + 8);
	p += designator(p, 2, 1, text, 40);

	sprintf(text, "naa.%016llX", (unsigned long long)get_be64(naa));
	p += designator_name(p, 3, 8, text);

	put_be16(word + 2, cmd->it->dom.target_port);
	p += designator(p, 1, ASSOC_PORT | 4, word, 4);
	put_be16(word + 2, SCSI_PORT_GROUP);
	p += designator(p, 1, ASSOC_PORT | 5, word, 4);
	p += designator_name(p, ISCSI_PROTOCOL | 3, PIV | ASSOC_PORT | 8,
			     cmd->nexus->target_port_name);
	p += designator_name(p, ISCSI_PROTOCOL | 3, PIV | ASSOC_TARGET | 8,
			     lun->target->iqn);
	return (size_t)(p - start);
}

static size_t vpd_extended(struct scsi_cmd *cmd, uint8_t *p)
{
	p[1] = 0x07; /* HEADSUP ORDSUP SIMPSUP */
	p[3] = 0x01; /* LUICLR */
	p[9] = SCSI_SENSE_MAX;
	return 0x3c;
}

/* All mode pages are shared by all nexuses. */
static size_t vpd_mode_policy(struct scsi_cmd *cmd, uint8_t *p)
{
	p[0] = 0x3f;
	p[1] = 0xff;
	return 4;
}

static size_t vpd_ports(struct scsi_cmd *cmd, uint8_t *p)
{
	const struct scsi_target *target = cmd->target;
	char name[ISCSI_NAME_MAX + 16];
	uint8_t *start = p;

	for (unsigned i = 0; i < target->ports_count; i++) {
		size_t len;

		memset(p, 0, 12);
		put_be16(p + 2, target->rtpi[i]);
		snprintf(name, sizeof(name), "%s,t,0x%04x", target->iqn,
			 target->tpgt[i]);
		len = designator_name(p + 12, ISCSI_PROTOCOL | 3,
				      PIV | ASSOC_PORT | 8, name);
		put_be16(p + 10, (uint16_t)len);
		p += 12 + len;
	}
	return (size_t)(p - start);
}

static size_t vpd_block_limits(struct scsi_cmd *cmd, uint8_t *p)
{
	uint32_t block = cmd->lun->block_bytes;
	uint32_t granule = SCSI_UNMAP_GRANULE / block;

	p[0] = 1; /* WSNZ */
	p[1] = SCSI_COMPARE_BLOCKS_MAX;
	put_be16(p + 2, (uint16_t)granule);
	put_be32(p + 4, SCSI_TRANSFER_MAX / block);
	put_be32(p + 8, (1u << 20) / block);
	put_be32(p + 16, scsi__unmap_max(block));
	put_be32(p + 20, SCSI_UNMAP_DESCRIPTORS_MAX);
	put_be32(p + 24, granule);
	put_be32(p + 28, 0x80000000); /* aligned to 0 */
	put_be64(p + 32, scsi__write_same_max(block));
	put_be32(p + 40, SCSI_ATOMIC_MAX / block);
	return 0x3c;
}

static size_t vpd_characteristics(struct scsi_cmd *cmd, uint8_t *p)
{
	p[1] = 0x01; /* non-rotating */
	p[3] = 0x40; /* WABEREQ: after a block erase, reads return data */
	return 0x3c;
}

static size_t vpd_provisioning(struct scsi_cmd *cmd, uint8_t *p)
{
	p[0] = SCSI_THRESHOLD_EXPONENT;
	p[1] = 0x80 | 0x40 | 0x20 | 0x04; /* LBPU LBPWS LBPWS10 LBPRZ */
	p[2] = 2; /* thin */
	return 4;
}

static size_t vpd_pages(struct scsi_cmd *cmd, uint8_t *p);

static const struct {
	uint8_t page;
	bool unitless; /* there without a unit */
	size_t (*fill)(struct scsi_cmd *cmd, uint8_t *p);
} vpd[] = {
	{ 0x00, true, vpd_pages },
	{ 0x80, false, vpd_serial },
	{ 0x83, false, vpd_identification },
	{ 0x86, false, vpd_extended },
	{ 0x87, false, vpd_mode_policy },
	{ 0x88, false, vpd_ports },
	{ 0x8f, false, scsi__copy_vpd },
	{ 0xb0, false, vpd_block_limits },
	{ 0xb1, false, vpd_characteristics },
	{ 0xb2, false, vpd_provisioning },
};

static size_t vpd_pages(struct scsi_cmd *cmd, uint8_t *p)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(vpd); i++)
		if (cmd->lun != NULL || vpd[i].unitless)
			p[n++] = vpd[i].page;
	return n;
}

void scsi__inquiry(struct scsi_cmd *cmd)
{
	size_t room = 4096 + (size_t)cmd->target->ports_count * 280;
	uint8_t *d;
	size_t i, len;

	if ((cmd->cdb[1] & 1) == 0) {
		standard(cmd);
		return;
	}
	for (i = 0; i < ARRAY_LEN(vpd); i++)
		if (vpd[i].page == cmd->cdb[2] &&
		    (cmd->lun != NULL || vpd[i].unitless))
			break;
	if (i == ARRAY_LEN(vpd)) {
		scsi__check_field(cmd, 2, -1);
		scsi__done(cmd);
		return;
	}
	d = cmd->memory = calloc(1, room);
	if (d == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return;
	}
	d[0] = cmd->lun != NULL ? 0 : NO_UNIT;
	d[1] = cmd->cdb[2];
	len = vpd[i].fill(cmd, d + 4);
	assert(4 + len <= room && len <= UINT16_MAX);
	put_be16(d + 2, (uint16_t)len);
	scsi__reply(cmd, d, 4 + len, get_be16(cmd->cdb + 3));
}

/* ---- REPORT LUNS (SPC-4 6.33) ---- */

bool scsi__report_luns_parse(struct scsi_cmd *cmd)
{
	cmd->dir = SCSI_DIR_IN;
	if (cmd->cdb[2] > 2)
		return scsi__check_field(cmd, 2, -1);
	if (get_be32(cmd->cdb + 6) < 16)
		return scsi__check_field(cmd, 6, -1);
	return true;
}

/* Whoever reads the list knows that it changed. */
static void luns_heard(struct scsi_nexus *nexus)
{
	for (unsigned i = 0; i < nexus->units_count; i++)
		if (nexus->units[i] != NULL)
			nexus->units[i]->ua &= ~(1u << UA_LUNS);
}

void scsi__report_luns(struct scsi_cmd *cmd)
{
	const struct scsi_target *target = cmd->target;
	bool well_known = cmd->cdb[2] == 1; /* there is none */
	size_t n = 0;
	uint8_t *d;

	d = cmd->memory = calloc(target->luns_count + 2, 8);
	if (d == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return;
	}
	for (unsigned i = 0; i < target->luns_size && !well_known; i++) {
		if (target->luns[i] == NULL)
			continue;
		put_be16(d + 8 + 8 * n, (uint16_t)(i < 256 ? i : 0x4000 | i));
		n++;
	}
	if (n == 0 && cmd->cdb[2] == 2)
		n = 1; /* a list of all is not empty: LUN 0, where to ask */
	put_be32(d, (uint32_t)(8 * n));
	luns_heard(cmd->nexus);
	scsi__reply(cmd, d, 8 + 8 * n, get_be32(cmd->cdb + 6));
}

/* ---- READ CAPACITY (SBC-3 5.15, 5.16) ---- */

void scsi__capacity10(struct scsi_cmd *cmd)
{
	uint64_t last = scsi__lun_blocks(cmd->lun) - 1;
	uint8_t d[8];

	put_be32(d, (uint32_t)MIN(last, UINT32_MAX));
	put_be32(d + 4, cmd->lun->block_bytes);
	scsi__reply(cmd, d, sizeof(d), sizeof(d));
}

void scsi__capacity16(struct scsi_cmd *cmd)
{
	uint8_t d[32] = { 0 };

	put_be64(d, scsi__lun_blocks(cmd->lun) - 1);
	put_be32(d + 8, cmd->lun->block_bytes);
	/* Eight logical blocks of 512 make what we write at once. */
	d[13] = cmd->lun->block_bytes == 512 ? 3 : 0;
	d[14] = 0xc0; /* LBPME LBPRZ */
	scsi__reply(cmd, d, sizeof(d), get_be32(cmd->cdb + 10));
}
