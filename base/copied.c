/* copied: the counters. */
#include "base/copied.h"

struct counter copied_bytes[COPIED_REASONS] = {
	[COPIED_RECEIVE] = { .name = "basalt_base_copied_receive_bytes_total",
			     .help = "payload copied out of receive buffers" },
	[COPIED_IMMEDIATE] = { .name = "basalt_base_copied_immediate_bytes_total",
			       .help = "immediate data copied into place" },
	[COPIED_GATHER] = { .name = "basalt_base_copied_gather_bytes_total",
			    .help = "blocks gathered from several pages" },
	[COPIED_EDGE] = { .name = "basalt_base_copied_edge_bytes_total",
			  .help = "blocks merged of old and new bytes" },
	[COPIED_COMMAND] = { .name = "basalt_base_copied_command_bytes_total",
			     .help = "data that commands look into" },
};

void copied_register(void)
{
	for (unsigned i = 0; i < COPIED_REASONS; i++)
		counter_register(&copied_bytes[i]);
}
