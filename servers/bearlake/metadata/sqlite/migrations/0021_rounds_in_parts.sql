-- Only the meaning changes: index_pages may hold slices of log entries after store.rolled_position, because a round of roll-up commits in
-- parts. Programs of older layouts would return these slices twice; the number of the layout keeps them out.
UPDATE store SET rolled_position = rolled_position;
