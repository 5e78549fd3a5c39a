/*
 * text: key=value pairs and their values (RFC 7143 section 6.1).
 *
 * A reader walks pairs in a buffer that the caller owns and that ends with a
 * NUL; a writer appends pairs to a buffer of fixed room and remembers if one
 * did not fit.  Values are checked as they are converted: a peer wrote them.
 */
#include "iscsi/iscsi_int.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

static bool key_char(char c)
{
	return isalnum((unsigned char)c) || (c != '\0' && strchr(".-+@_#", c));
}

/*
 * The next pair of the @len bytes at *@at, which are followed by a NUL.
 * Returns 1 with @key and @value (in the buffer: the '=' is overwritten), 0 at
 * the end, -EINVAL if this is no pair: no '=', a bad name, a control character.
 */
int iscsi__text_next(char **at, size_t *len, char **key, char **value)
{
	char *eq;
	size_t n;

	while (*len > 0 && **at == '\0') { /* a run of NULs is tolerated */
		(*at)++;
		(*len)--;
	}
	if (*len == 0)
		return 0;
	n = strnlen(*at, *len);
	if (n == *len)
		return -EINVAL; /* the last pair lacks its NUL */
	eq = memchr(*at, '=', n);
	if (eq == NULL || eq == *at || eq - *at > ISCSI_KEY_MAX)
		return -EINVAL;
	for (char *p = *at; p < eq; p++)
		if (!key_char(*p))
			return -EINVAL;
	for (unsigned char *p = (unsigned char *)eq + 1; *p; p++)
		if (*p < 0x20 || *p == 0x7f)
			return -EINVAL;
	*eq = '\0';
	*key = *at;
	*value = eq + 1;
	*at += n + 1;
	*len -= n + 1;
	return 1;
}

void iscsi__text_out_init(struct text_out *out, char *buf, size_t room)
{
	out->buf = buf;
	out->room = room;
	out->len = 0;
	out->full = false;
}

void iscsi__text_put(struct text_out *out, const char *key, const char *fmt,
		     ...)
{
	size_t left = out->room - out->len;
	va_list ap;
	int a, b;

	a = snprintf(out->buf + out->len, left, "%s=", key);
	if (a < 0 || (size_t)a >= left) {
		out->full = true;
		return;
	}
	va_start(ap, fmt);
	b = vsnprintf(out->buf + out->len + a, left - (size_t)a, fmt, ap);
	va_end(ap);
	if (b < 0 || (size_t)b >= left - (size_t)a) {
		out->full = true;
		return;
	}
	out->len += (size_t)a + (size_t)b + 1; /* each pair ends with its NUL */
}

void iscsi__text_put_hex(struct text_out *out, const char *key,
			 const uint8_t *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	char hex[2 * CHAP_CHALLENGE_MAX + 3] = "0x";

	assert(n <= CHAP_CHALLENGE_MAX);
	for (size_t i = 0; i < n; i++) {
		hex[2 + 2 * i] = digits[bytes[i] >> 4];
		hex[3 + 2 * i] = digits[bytes[i] & 15];
	}
	hex[2 + 2 * n] = '\0';
	iscsi__text_put(out, key, "%s", hex);
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/*
 * A numerical-value, decimal or hexadecimal: the whole of @text, no sign, no
 * space, no range.  Returns 0; -EINVAL if it is none; -ERANGE beyond 64 bits or
 * outside [@min, @max].
 */
int iscsi__text_number(const char *text, uint64_t min, uint64_t max,
		       uint64_t *out)
{
	uint64_t v = 0;
	unsigned base = 10;

	if (text[0] == '0' && (text[1] | 0x20) == 'x') {
		base = 16;
		text += 2;
	}
	if (*text == '\0')
		return -EINVAL;
	for (; *text; text++) {
		int d = digit_of(*text);

		if (d < 0 || (unsigned)d >= base)
			return -EINVAL;
		if (__builtin_mul_overflow(v, (uint64_t)base, &v) ||
		    __builtin_add_overflow(v, (uint64_t)d, &v))
			return -ERANGE;
	}
	if (v < min || v > max)
		return -ERANGE;
	*out = v;
	return 0;
}

int iscsi__text_bool(const char *text, bool *out)
{
	if (strcmp(text, "Yes") == 0)
		*out = true;
	else if (strcmp(text, "No") == 0)
		*out = false;
	else
		return -EINVAL;
	return 0;
}

static int base64_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static int base64_decode(const char *text, uint8_t *out, size_t room,
			 size_t *len)
{
	size_t n = strlen(text), pad = 0, want;
	uint32_t bits = 0;
	unsigned held = 0;

	if (n == 0 || n % 4 != 0)
		return -EINVAL;
	while (pad < 2 && text[n - 1 - pad] == '=')
		pad++;
	want = n / 4 * 3 - pad;
	if (want > room)
		return -EMSGSIZE;
	*len = 0;
	for (size_t i = 0; i < n - pad; i++) {
		int d = base64_of(text[i]);

		if (d < 0)
			return -EINVAL;
		bits = bits << 6 | (uint32_t)d;
		held += 6;
		if (held >= 8) {
			held -= 8;
			out[(*len)++] = (uint8_t)(bits >> held);
		}
	}
	return *len == want ? 0 : -EINVAL;
}

/*
 * A large-binary-value: 0x with an even number of digits, or 0b with padded
 * Base64.  Returns 0 with *@len bytes in @out; -EINVAL if malformed; -EMSGSIZE
 * beyond @room.
 */
int iscsi__text_binary(const char *text, uint8_t *out, size_t room, size_t *len)
{
	size_t n;

	if (text[0] != '0')
		return -EINVAL;
	if ((text[1] | 0x20) == 'b')
		return base64_decode(text + 2, out, room, len);
	if ((text[1] | 0x20) != 'x')
		return -EINVAL;
	text += 2;
	n = strlen(text);
	if (n == 0 || n % 2 != 0)
		return -EINVAL;
	if (n / 2 > room)
		return -EMSGSIZE;
	for (size_t i = 0; i < n; i += 2) {
		int hi = digit_of(text[i]), lo = digit_of(text[i + 1]);

		if (hi < 0 || lo < 0)
			return -EINVAL;
		out[i / 2] = (uint8_t)(hi << 4 | lo);
	}
	*len = n / 2;
	return 0;
}

/*
 * The first element of the comma separated @list that is one of @ours, as an
 * index into it; -ENOENT if none is; -EINVAL for an empty element.
 */
int iscsi__text_list(const char *list, const char *const *ours, unsigned count)
{
	int found = -ENOENT;

	for (;;) {
		size_t n = strcspn(list, ",");

		if (n == 0)
			return -EINVAL;
		for (unsigned i = 0; found < 0 && i < count; i++)
			if (strlen(ours[i]) == n &&
			    memcmp(ours[i], list, n) == 0)
				found = (int)i;
		if (list[n] == '\0')
			return found;
		list += n + 1;
	}
}

/* Well-formed UTF-8 without overlong forms and surrogates. */
static bool utf8_ok(const char *text)
{
	const uint8_t *p = (const uint8_t *)text;

	while (*p) {
		uint32_t c = *p++, min;
		unsigned more;

		if (c < 0x80)
			continue;
		if ((c & 0xe0) == 0xc0)
			more = 1, c &= 0x1f, min = 0x80;
		else if ((c & 0xf0) == 0xe0)
			more = 2, c &= 0x0f, min = 0x800;
		else if ((c & 0xf8) == 0xf0)
			more = 3, c &= 0x07, min = 0x10000;
		else
			return false;
		while (more-- > 0) {
			if ((*p & 0xc0) != 0x80)
				return false;
			c = c << 6 | (*p++ & 0x3f);
		}
		if (c < min || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
			return false;
	}
	return true;
}

/*
 * An iSCSI name (4.2.7): iqn., eui. or naa., at most 223 bytes, no space or
 * control character or ASCII punctuation beyond "-.:".  @out gets it in lower
 * case, the form in which names are compared.  Returns 0 or -EINVAL.
 */
int iscsi__name_parse(const char *name, char out[ISCSI_NAME_MAX + 1])
{
	size_t n = strlen(name);

	if (n < 5 || n > ISCSI_NAME_MAX || !utf8_ok(name))
		return -EINVAL;
	for (size_t i = 0; i <= n; i++) {
		unsigned char c = (unsigned char)name[i];

		if (c != '\0' && c < 0x80 && !isalnum(c) && c != '-' &&
		    c != '.' && c != ':' && c != '_')
			return -EINVAL;
		out[i] = (char)(c < 0x80 ? tolower(c) : c);
	}
	if (strncmp(out, "iqn.", 4) != 0 && strncmp(out, "eui.", 4) != 0 &&
	    strncmp(out, "naa.", 4) != 0)
		return -EINVAL;
	return 0;
}
