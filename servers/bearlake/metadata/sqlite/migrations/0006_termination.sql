-- Streams that take no more batches. See metadata/__init__.py, `StreamCatalog.terminate`.

ALTER TABLE streams ADD COLUMN is_terminated INTEGER NOT NULL DEFAULT 0;
