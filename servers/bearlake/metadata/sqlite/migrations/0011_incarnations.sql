-- The newest incarnation of a name is found by an index: a creation names it.
CREATE INDEX streams_by_name_and_number ON streams (name, number);
