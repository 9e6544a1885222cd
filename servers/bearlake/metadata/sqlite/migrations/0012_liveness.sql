-- Liveness by counters instead of times: see metadata/liveness.py.
ALTER TABLE servers DROP COLUMN heartbeat_ms;
ALTER TABLE servers ADD COLUMN heartbeat_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE servers ADD COLUMN lapse_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE servers ADD COLUMN has_lapsed INTEGER NOT NULL DEFAULT 0;
