/* The configuration file, portals and log levels. */
#include "node/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), why[256];
	struct config_portal portal;
	struct config config;

	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	config_parse("fuzz", text, &config, why, sizeof(why));
	config_portal_parse(text, 3260, &portal);
	free(text);
	return 0;
}
