/* scsi_log: LOG SENSE and LOG SELECT (SPC-4 6.7, 6.8, 7.3; SBC-3 6.4). */
#include "iscsi/scsi_int.h"

#define LOG_ROOM_BYTES 128u

static size_t param(uint8_t *p, unsigned code, const void *data, size_t len)
{
	put_be16(p, (uint16_t)code);
	p[2] = 0x03; /* binary list */
	p[3] = (uint8_t)len;
	memcpy(p + 4, data, len);
	return 4 + len;
}

/* How many threshold sets are free and used (SBC-3 6.4.4). */
static size_t log_provisioning(struct scsi_cmd *cmd, uint8_t *p, unsigned from)
{
	uint64_t set = scsi__threshold_set(cmd->lun);
	uint64_t used, available;
	uint8_t count[8] = { 0 };
	size_t len = 0;

	dom_object_space(cmd->lun->object, &used, &available);
	count[4] = 1; /* scope: this unit */
	if (from <= 1) {
		put_be32(count, (uint32_t)MIN(available / set, UINT32_MAX));
		len += param(p, 1, count, sizeof(count));
	}
	if (from <= 2) {
		put_be32(count, (uint32_t)MIN(DIV_UP(used, set), UINT32_MAX));
		len += param(p + len, 2, count, sizeof(count));
	}
	return len;
}

/* A virtual disk has no temperature: "not known". */
static size_t log_temperature(struct scsi_cmd *cmd, uint8_t *p, unsigned from)
{
	static const uint8_t unknown[2] = { 0, 0xff };
	size_t len = 0;

	if (from <= 0)
		len += param(p, 0, unknown, sizeof(unknown));
	if (from <= 1)
		len += param(p + len, 1, unknown, sizeof(unknown));
	return len;
}

static size_t log_exceptions(struct scsi_cmd *cmd, uint8_t *p, unsigned from)
{
	static const uint8_t none[4] = { 0, 0, 0xff, 0 };

	return from <= 0 ? param(p, 0, none, sizeof(none)) : 0;
}

static size_t log_pages(struct scsi_cmd *cmd, uint8_t *p, unsigned from);
static size_t log_subpages(struct scsi_cmd *cmd, uint8_t *p, unsigned from);

static const struct log_page {
	uint8_t page, sub;
	uint16_t last; /* highest parameter code */
	size_t (*fill)(struct scsi_cmd *cmd, uint8_t *p, unsigned from);
} pages[] = {
	{ 0x00, 0x00, 0, log_pages },	     { 0x00, 0xff, 0, log_subpages },
	{ 0x0c, 0x00, 2, log_provisioning }, { 0x0d, 0x00, 1, log_temperature },
	{ 0x2f, 0x00, 0, log_exceptions },
};

static size_t log_pages(struct scsi_cmd *cmd, uint8_t *p, unsigned from)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(pages); i++)
		if (pages[i].sub == 0)
			p[n++] = pages[i].page;
	return n;
}

static size_t log_subpages(struct scsi_cmd *cmd, uint8_t *p, unsigned from)
{
	for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
		p[2 * i] = pages[i].page;
		p[2 * i + 1] = pages[i].sub;
	}
	return 2 * ARRAY_LEN(pages);
}

static const struct log_page *find(const struct scsi_cmd *cmd)
{
	for (size_t i = 0; i < ARRAY_LEN(pages); i++)
		if (pages[i].page == (cmd->cdb[2] & 0x3f) &&
		    pages[i].sub == cmd->cdb[3])
			return &pages[i];
	return NULL;
}

/* The page is not there, or that subpage of it. */
static bool no_page(struct scsi_cmd *cmd)
{
	for (size_t i = 0; i < ARRAY_LEN(pages); i++)
		if (pages[i].page == (cmd->cdb[2] & 0x3f))
			return scsi__check_field(cmd, 3, -1);
	return scsi__check_field(cmd, 2, 5);
}

bool scsi__log_sense_parse(struct scsi_cmd *cmd)
{
	const struct log_page *page = find(cmd);

	cmd->dir = SCSI_DIR_IN;
	if ((cmd->cdb[1] & 1) != 0) /* SP */
		return scsi__check_field(cmd, 1, 0);
	if (page == NULL)
		return no_page(cmd);
	if (get_be16(cmd->cdb + 5) > page->last)
		return scsi__check_field(cmd, 5, -1);
	return true;
}

void scsi__log_sense(struct scsi_cmd *cmd)
{
	const struct log_page *page = find(cmd);
	uint8_t d[LOG_ROOM_BYTES] = { 0 };
	size_t len;

	d[0] = page->page;
	if (page->sub != 0) {
		d[0] |= 0x40;
		d[1] = page->sub;
	}
	len = page->fill(cmd, d + 4, get_be16(cmd->cdb + 5));
	assert(4 + len <= sizeof(d));
	put_be16(d + 2, (uint16_t)len);
	scsi__reply(cmd, d, 4 + len, get_be16(cmd->cdb + 7));
}

/* No parameter can be set; resetting them finds nothing to reset. */
bool scsi__log_select_parse(struct scsi_cmd *cmd)
{
	if ((cmd->cdb[1] & 1) != 0) /* SP */
		return scsi__check_field(cmd, 1, 0);
	if (get_be16(cmd->cdb + 7) != 0)
		return scsi__check_field(cmd, 7, -1);
	return true;
}

void scsi__log_select(struct scsi_cmd *cmd)
{
	scsi__done(cmd);
}
