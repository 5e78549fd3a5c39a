/* err: the names and texts of status codes. */
#include "base/err.h"

#include <string.h>

const char *err_name(int status)
{
	const char *name;

	switch (-status) {
	case 0:
		return "OK";
#define X(code, text)                                                          \
	case code:                                                             \
		return #code;
		ERR_MAP(X)
#undef X
	}
	/* What only the kernel says: EFBIG, ENOTDIR. */
	name = strerrorname_np(-status);
	return name != NULL ? name : "EUNKNOWN";
}

const char *err_text(int status)
{
	const char *text;

	switch (-status) {
	case 0:
		return "done";
#define X(code, text)                                                          \
	case code:                                                             \
		return text;
		ERR_MAP(X)
#undef X
	}
	text = strerrordesc_np(-status);
	return text != NULL ? text : "unknown error";
}
