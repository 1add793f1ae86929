/* The table of the volume's functions that a session calls: apart, so that a test links sessions without a volume. */
#include "session.h"

void session_volume_real(struct volume *v, struct session_volume *ret)
{
	*ret = (struct session_volume){
		.v = v,
		.knowledge = volume_knowledge,
		.start_tag = volume_start_tag,
		.live_root = volume_live_root,
		.list_parts = volume_list_parts,
		.backlog = volume_backlog,
		.source_open = content_source_open,
		.source_next = content_source_next,
		.source_saved = content_source_saved,
		.source_close = content_source_close,
		.batch_new = batch_new,
		.batch_free = batch_free,
		.batch_part = batch_part,
		.batch_next_want = batch_next_want,
		.batch_content = batch_content,
		.batch_content_gone = batch_content_gone,
		.batch_complete = batch_complete,
		.batch_apply = batch_apply,
		.heal_serve = volume_heal_serve,
		.starts = volume_starts,
		.starts_learn = volume_starts_learn,
		.starts_check = volume_starts_check,
		.renew_prepare = volume_renew_prepare,
		.disown = volume_disown,
		.peer_renewed = volume_peer_renewed,
		.set_peer_knowledge = volume_set_peer_knowledge,
		.stats = volume_stats(v),
	};
}
