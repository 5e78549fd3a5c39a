/*
 * scsi_mode: MODE SENSE and MODE SELECT (SPC-4 6.11-6.14, 7.5; SBC-3 6.5).
 * D_SENSE, SWP and TAS can be changed; nothing is saved, so a reset brings the
 * defaults back.
 */
#include "iscsi/scsi_int.h"

enum { PC_CURRENT, PC_CHANGEABLE, PC_DEFAULT, PC_SAVED };

#define D_SENSE 0x04u /* control, byte 2 */
#define SWP 0x08u /* byte 4 */
#define TAS 0x40u /* byte 5 */
#define PAGE_ROOM 64u /* the longest page, header and all */

static void fill_recovery(const struct scsi_lun *lun, unsigned pc, uint8_t *p)
{
	if (pc == PC_CHANGEABLE)
		return;
	p[2] = 0xc0; /* AWRE ARRE */
	p[7] = 0x80; /* LBPERE: thresholds are reported */
}

/* Writes are durable when answered, so WCE is 0 and stays it. */
static void fill_nothing(const struct scsi_lun *lun, unsigned pc, uint8_t *p)
{
}

static void fill_control(const struct scsi_lun *lun, unsigned pc, uint8_t *p)
{
	if (pc == PC_CHANGEABLE) {
		p[2] = D_SENSE;
		p[4] = SWP;
		p[5] = TAS;
		return;
	}
	p[2] = pc == PC_CURRENT && lun->d_sense ? D_SENSE : 0;
	p[3] = 0x10; /* unrestricted reordering */
	p[4] = pc == PC_CURRENT && lun->swp ? SWP : 0;
	p[5] = pc == PC_DEFAULT || lun->tas ? TAS : 0;
	put_be16(p + 8, 0xffff); /* busy timeout: no limit */
}

/*
 * One soft threshold, in threshold sets: the space left at which dom says that
 * it is low, and hosts hear 38/07 (SBC-3 4.7.3.8, 6.5.8).  What is left now is
 * in log page 0C, in the same unit.
 */
static void fill_thresholds(const struct scsi_lun *lun, unsigned pc, uint8_t *p)
{
	uint64_t set = scsi__threshold_set(lun);

	if (pc == PC_CHANGEABLE)
		return;
	p += SCSI_THRESHOLD_AT;
	p[0] = 0x80 | 1 << 3; /* enabled, soft, armed by decrease */
	p[1] = 1; /* available resources */
	put_be32(p + 4, (uint32_t)MIN(dom_object_low_space(lun->object) / set,
				      UINT32_MAX));
}

static const struct mode_page {
	uint8_t page, sub;
	uint8_t len; /* with its header of 2 or 4 bytes */
	void (*fill)(const struct scsi_lun *lun, unsigned pc, uint8_t *p);
} pages[] = {
	{ 0x01, 0x00, 12, fill_recovery }, { 0x02, 0x00, 16, fill_nothing },
	{ 0x08, 0x00, 20, fill_nothing },  { 0x0a, 0x00, 12, fill_control },
	{ 0x0a, 0x01, 32, fill_nothing },  { 0x1a, 0x00, 40, fill_nothing },
	{ 0x1c, 0x00, 12, fill_nothing },  { 0x1c, 0x02, 24, fill_thresholds },
};

static unsigned put_page(const struct scsi_lun *lun, const struct mode_page *mp,
			 unsigned pc, uint8_t *p)
{
	assert(mp->len <= PAGE_ROOM);
	memset(p, 0, mp->len);
	mp->fill(lun, pc, p);
	p[0] = mp->page;
	if (mp->sub == 0) {
		p[1] = (uint8_t)(mp->len - 2);
	} else {
		p[0] |= 0x40;
		p[1] = mp->sub;
		put_be16(p + 2, (uint16_t)(mp->len - 4));
	}
	return mp->len;
}

/* ---- MODE SENSE ---- */

static bool wanted(const struct mode_page *mp, unsigned page, unsigned sub)
{
	if (page != 0x3f && mp->page != page)
		return false;
	return sub == 0xff || mp->sub == sub;
}

bool scsi__mode_sense_parse(struct scsi_cmd *cmd)
{
	unsigned page = cmd->cdb[2] & 0x3f, sub = cmd->cdb[3];
	bool known = false; /* with other subpages */

	cmd->dir = SCSI_DIR_IN;
	if (cmd->cdb[2] >> 6 == PC_SAVED)
		return scsi__check(cmd, SENSE(5, 0x39, 0x00));
	if (page == 0x3f && sub != 0 && sub != 0xff)
		return scsi__check_field(cmd, 3, -1);
	for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
		if (wanted(&pages[i], page, sub))
			return true;
		known = known || pages[i].page == page;
	}
	return scsi__check_field(cmd, known ? 3 : 2, -1);
}

static void put_block_descriptor(const struct scsi_lun *lun, uint8_t *p)
{
	uint64_t blocks = scsi__lun_blocks(lun);

	put_be32(p, (uint32_t)MIN(blocks, UINT32_MAX));
	p[4] = 0;
	put_be24(p + 5, lun->block_bytes);
}

void scsi__mode_sense(struct scsi_cmd *cmd)
{
	const struct scsi_lun *lun = cmd->lun;
	uint8_t d[16 + ARRAY_LEN(pages) * PAGE_ROOM] = { 0 };
	bool ten = cmd->op->len == 10, dbd = (cmd->cdb[1] & 8) != 0;
	uint8_t specific = 0x10; /* DPOFUA */
	unsigned len = ten ? 8 : 4;

	if (lun->read_only || lun->swp)
		specific |= 0x80;
	if (!dbd) {
		put_block_descriptor(lun, d + len);
		len += 8;
	}
	for (size_t i = 0; i < ARRAY_LEN(pages); i++)
		if (wanted(&pages[i], cmd->cdb[2] & 0x3f, cmd->cdb[3]))
			len += put_page(lun, &pages[i], cmd->cdb[2] >> 6,
					d + len);
	if (ten) {
		put_be16(d, (uint16_t)(len - 2));
		d[3] = specific;
		put_be16(d + 6, dbd ? 0 : 8);
	} else {
		assert(len <= 256);
		d[0] = (uint8_t)(len - 1);
		d[2] = specific;
		d[3] = dbd ? 0 : 8;
	}
	scsi__reply(cmd, d, len, ten ? get_be16(cmd->cdb + 7) : cmd->cdb[4]);
}

/* ---- MODE SELECT ---- */

bool scsi__mode_select_parse(struct scsi_cmd *cmd)
{
	if ((cmd->cdb[1] & 0x01) != 0)
		return scsi__check_field(cmd, 1, 0); /* nothing is saved */
	cmd->dir = SCSI_DIR_OUT;
	cmd->transfer_len =
		cmd->op->len == 10 ? get_be16(cmd->cdb + 7) : cmd->cdb[4];
	if (cmd->transfer_len > 0 && (cmd->cdb[1] & 0x10) == 0)
		return scsi__check_field(cmd, 1, 4);
	return true;
}

static const struct mode_page *find_page(const uint8_t *p, uint64_t left)
{
	unsigned sub = (p[0] & 0x40) != 0 ? p[1] : 0;

	for (size_t i = 0; i < ARRAY_LEN(pages); i++)
		if (pages[i].page == (p[0] & 0x3f) && pages[i].sub == sub &&
		    ((p[0] & 0x40) != 0) == (sub != 0))
			return &pages[i];
	return NULL;
}

/* One page at @p: may it be set to this?  @at: where it stands in the list. */
static bool check_page(struct scsi_cmd *cmd, const struct mode_page *mp,
		       const uint8_t *p, unsigned at)
{
	uint8_t now[PAGE_ROOM], mask[PAGE_ROOM];
	unsigned head = mp->sub == 0 ? 2 : 4;

	put_page(cmd->lun, mp, PC_CURRENT, now);
	put_page(cmd->lun, mp, PC_CHANGEABLE, mask);
	if (memcmp(p + 1, now + 1, head - 1) != 0)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, at + 1);
	for (unsigned i = head; i < mp->len; i++)
		if (((p[i] ^ now[i]) & ~mask[i]) != 0)
			return scsi__check_param(cmd, SENSE_INVALID_PARAM,
						 at + i);
	return true;
}

static bool check_block_descriptor(struct scsi_cmd *cmd, const uint8_t *p,
				   unsigned at)
{
	uint32_t blocks = get_be32(p), bytes = get_be24(p + 5);
	uint64_t capacity = scsi__lun_blocks(cmd->lun);

	if (bytes != 0 && bytes != cmd->lun->block_bytes)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, at + 5);
	/* The capacity is not the initiator's to choose. */
	if (blocks != 0 && blocks != UINT32_MAX && blocks != capacity)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, at);
	return true;
}

/*
 * Check the list and find the control page in it; the pages begin at the
 * returned offset, 0: answered.
 */
static bool check_list(struct scsi_cmd *cmd, const uint8_t *list,
		       const uint8_t **control)
{
	bool ten = cmd->op->len == 10;
	uint64_t len = cmd->transfer_len;
	unsigned at = ten ? 8 : 4, block_len;

	if (len < at)
		return scsi__check_param(cmd, SENSE_LIST_LENGTH, 0);
	block_len = ten ? get_be16(list + 6) : list[3];
	if (ten && (list[4] & 1) != 0) /* LONGLBA */
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 4);
	if (block_len != 0 && block_len != 8)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, ten ? 6 : 3);
	if (block_len > len - at)
		return scsi__check_param(cmd, SENSE_LIST_LENGTH, at);
	if (block_len == 8 && !check_block_descriptor(cmd, list + at, at))
		return false;
	at += block_len;
	while (at < len) {
		const struct mode_page *mp;

		if (len - at < 2)
			return scsi__check_param(cmd, SENSE_LIST_LENGTH, at);
		mp = find_page(list + at, len - at);
		if (mp == NULL)
			return scsi__check_param(cmd, SENSE_INVALID_PARAM, at);
		if (len - at < mp->len)
			return scsi__check_param(cmd, SENSE_LIST_LENGTH, at);
		if (!check_page(cmd, mp, list + at, at))
			return false;
		if (mp->fill == fill_control)
			*control = list + at;
		at += mp->len;
	}
	return true;
}

/* The pages are the object's: every unit that shows it has the same. */
static void set_control(struct scsi_cmd *cmd, const uint8_t *control)
{
	const struct scsi_lun *lun = cmd->lun;
	bool d_sense = (control[2] & D_SENSE) != 0;
	bool swp = (control[4] & SWP) != 0;
	bool tas = (control[5] & TAS) != 0;
	struct scsi_lun *unit;

	if (d_sense == lun->d_sense && swp == lun->swp && tas == lun->tas)
		return;
	SCSI_UNITS_FOREACH (unit, lun) {
		scsi__ua_set_all(unit, UA_MODE_CHANGED, cmd->it);
		unit->d_sense = d_sense;
		unit->swp = swp;
		unit->tas = tas;
	}
}

void scsi__mode_select(struct scsi_cmd *cmd)
{
	const uint8_t *control = NULL, *list;

	if (cmd->transfer_len == 0) {
		scsi__done(cmd);
		return;
	}
	list = scsi__list(cmd);
	if (list == NULL)
		return;
	if (check_list(cmd, list, &control) && control != NULL)
		set_control(cmd, control);
	scsi__done(cmd);
}
