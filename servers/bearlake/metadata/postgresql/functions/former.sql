-- Drops the functions of former layouts that this layout does not have, or has with another signature. It runs before the other files of
-- this folder. Add a function when you remove it, and never take it out again: a store may have any layout that can be upgraded.

-- Layout 26. Its programs do not call them; programs of earlier layouts did.
drop function if exists bearlake.commit_object(
    text, integer, bigint, bigint, bigint[], bigint[], bigint[], bigint[], bigint[], bigint[], integer[], integer[], bigint[], bigint[],
    bigint[]
);
drop function if exists bearlake.commit_object(
    text, integer, bigint, bigint, bigint[], bigint[], bigint[], bigint[], bigint[], bigint[], integer[], bigint[], bigint[], bigint[],
    bigint[], integer[], bigint[], bigint[]
);
drop function if exists bearlake.begin_session();
drop function if exists bearlake.create_cursor_after(bigint, text, bigint, text, bigint);
drop function if exists bearlake.delete_cursors(text, bigint, integer, bigint, bigint, text[]);
drop function if exists bearlake.save_cursors(
    bigint[], text[], bigint[], integer[], bigint[], integer[], text[], bigint[], bytea[], bigint[], text[]
);

-- Layout 26. Dropped only to be created again with other parameter names; its programs call it by position.
drop function if exists bearlake.swap_rows(
    bigint, bigint, integer, bigint, boolean, text[], bigint[], integer[], bigint[], bigint[], bigint[], bigint[], bigint[], bigint[],
    integer[], bigint[], bigint[], bigint[], integer[], integer[], integer[], integer, integer, integer
);

-- Layout 31. Its programs do not call them; its commit_object called them, and is replaced. A commit that began with the former commit_object fails
-- without effect (decision 107) and is repeated.
drop function if exists bearlake.judge_named(bearlake.producer_state, bigint, boolean, bigint, bigint, bigint, bigint);
drop function if exists bearlake.judge_idempotent(bearlake.producer_state, bigint, bigint, bigint, bigint, bigint, bigint);
