// Drives Confluent's own JavaScript client and serializers, and kafkajs's registry client, against a registry.
//
//   node client.js URL      prints "ok" when every step gave what it must
'use strict'

const assert = require('node:assert')
const {
  AvroDeserializer, AvroSerializer, JsonDeserializer, JsonSerializer, SchemaRegistryClient, SerdeType,
} = require('@confluentinc/schemaregistry')
const { SchemaRegistry, SchemaType } = require('@kafkajs/confluent-schema-registry')

const ORDER = { type: 'record', name: 'Order', fields: [{ name: 'id', type: 'int' }, { name: 'note', type: 'string' }] }
const WIDER = { ...ORDER, fields: [...ORDER.fields, { name: 'zone', type: 'string', default: 'eu' }] }
const BROKEN = { ...ORDER, fields: [...ORDER.fields, { name: 'zone', type: 'string' }] }
const JSON_ORDER = { type: 'object', properties: { id: { type: 'integer' }, note: { type: 'string' } } }
const RECORD = { id: 7, note: 'größe' }

async function confluent(url) {
  const client = new SchemaRegistryClient({ baseURLs: [url] })
  const id = await client.register('js-value', { schemaType: 'AVRO', schema: JSON.stringify(ORDER) }, false)
  assert.strictEqual(await client.getId('js-value', { schemaType: 'AVRO', schema: JSON.stringify(ORDER) }, false), id)
  const avro = new AvroSerializer(client, SerdeType.VALUE, { useLatestVersion: true })
  const bytes = await avro.serialize('js', RECORD)
  assert.strictEqual(bytes.readInt32BE(1), id)
  const read = await new AvroDeserializer(client, SerdeType.VALUE, {}).deserialize('js', bytes)
  assert.deepStrictEqual({ ...read }, RECORD)

  await client.register('json-value', { schemaType: 'JSON', schema: JSON.stringify(JSON_ORDER) }, false)
  const json = new JsonSerializer(client, SerdeType.VALUE, { useLatestVersion: true })
  const back = await new JsonDeserializer(client, SerdeType.VALUE, {}).deserialize('json', await json.serialize('json', RECORD))
  assert.deepStrictEqual({ ...back }, RECORD)

  assert.deepStrictEqual(await client.getAllSubjects(), ['js-value', 'json-value'])
  assert.deepStrictEqual(await client.getAllVersions('js-value'), [1])
  assert.strictEqual((await client.getLatestSchemaMetadata('js-value')).version, 1)
  const subject = 'js-value'
  assert.strictEqual(await client.testSubjectCompatibility(subject, { schema: JSON.stringify(WIDER) }), true)
  assert.strictEqual(await client.testSubjectCompatibility(subject, { schema: JSON.stringify(BROKEN) }), false)
  await client.updateCompatibility(subject, 'FULL')
  assert.strictEqual(await client.getCompatibility(subject), 'FULL')
  assert.deepStrictEqual(await client.deleteSubject('json-value', false), [1])
  assert.deepStrictEqual(await client.deleteSubject('json-value', true), [1])
  assert.deepStrictEqual(await client.getAllSubjects(), ['js-value'])
}

async function kafkajs(url) {
  const registry = new SchemaRegistry({ host: url })
  const { id } = await registry.register({ type: SchemaType.AVRO, schema: JSON.stringify(ORDER) }, { subject: 'kjs-value' })
  const read = await registry.decode(await registry.encode(id, RECORD))
  assert.deepStrictEqual({ ...read }, RECORD)
  assert.strictEqual(await registry.getLatestSchemaId('kjs-value'), id)
  assert.strictEqual(await registry.getRegistryId('kjs-value', 1), id)

  const proto = 'syntax = "proto3";\nmessage Order {\n  int32 id = 1;\n  string note = 2;\n}\n'
  const made = await registry.register({ type: SchemaType.PROTOBUF, schema: proto }, { subject: 'proto-value' })
  const message = await registry.decode(await registry.encode(made.id, RECORD))
  assert.deepStrictEqual({ ...message }, RECORD)

  const typed = await registry.register({ type: SchemaType.JSON, schema: JSON.stringify(JSON_ORDER) }, { subject: 'kjson-value' })
  assert.deepStrictEqual(await registry.decode(await registry.encode(typed.id, RECORD)), RECORD)
}

async function run() {
  await confluent(process.argv[2])
  await kafkajs(process.argv[2])
  console.log('ok')
}

run().then(() => process.exit(0), (error) => { console.error(error); process.exit(1) })
