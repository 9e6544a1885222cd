// Drives the kafkajs client for the tests: JSON lines in, JSON lines out.
//
//   node client.js BOOTSTRAP create TOPIC PARTITIONS
//   node client.js BOOTSTRAP produce TOPIC none|gzip|snappy  < messages
//   node client.js BOOTSTRAP consume TOPIC GROUP COUNT       > messages
//
// Standard error has kafkajs's errors, and its notes that the server throttles it.

const fs = require("fs");
const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } = require("kafkajs");
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const TYPES = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };
const decode = (text) => (text === null ? null : Buffer.from(text, "base64"));
const encode = (content) => (content === null || content === undefined ? null : Buffer.from(content).toString("base64"));

const logCreator = () => ({ namespace, level, log: { message, ...rest } }) => {
  if (level <= logLevel.ERROR || message.startsWith("Client side throttling")) {
    console.error(JSON.stringify({ namespace, message, ...rest }));
  }
};

async function create(kafka, topic, partitions) {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: Number(partitions), replicationFactor: 1 }] });
  await admin.disconnect();
}

async function produce(kafka, topic, compression) {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  const lines = fs.readFileSync(0, "utf8").split("\n").filter((line) => line);
  const messages = lines.map((line) => {
    const { key, value, headers } = JSON.parse(line);
    return { key: decode(key), value: decode(value), headers: toHeaders(headers) };
  });
  await producer.send({ topic, messages, compression: TYPES[compression] });
  await producer.disconnect();
}

// kafkajs keeps headers in an object: several values of one name become an array.
function toHeaders(pairs) {
  const headers = {};
  for (const [name, text] of pairs) {
    (headers[name] ??= []).push(decode(text));
  }
  return headers;
}

async function consume(kafka, topic, groupId, wanted) {
  const count = Number(wanted);
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 250 }); // a stop waits for the last fetch
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const next = new Map();
  let seen = 0;
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    const eachMessage = async ({ partition, message }) => {
      if (seen === count) return;
      seen += 1;
      next.set(partition, (BigInt(message.offset) + 1n).toString());
      process.stdout.write(JSON.stringify(toLine(message)) + "\n");
      if (seen === count) resolve();
    };
    consumer.run({ autoCommit: false, eachMessage }).catch(reject);
  });
  await consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic, partition, offset })));
  await consumer.disconnect();
}

function toLine({ key, value, headers }) {
  const pairs = Object.entries(headers ?? {}).flatMap(([name, values]) => [values].flat().map((each) => [name, encode(each)]));
  return { key: encode(key), value: encode(value), headers: pairs };
}

async function main() {
  const [bootstrap, command, ...rest] = process.argv.slice(2);
  // KAFKA_SASL: "MECHANISM USER SECRET" logs in.
  const [mechanism, username, ...secret] = (process.env.KAFKA_SASL ?? "").split(" ");
  const sasl = username ? { mechanism: mechanism.toLowerCase(), username, password: secret.join(" ") } : undefined;
  const retry = sasl ? { retries: 2 } : undefined;
  const kafka = new Kafka({ clientId: "bearlake-tests", brokers: [bootstrap], logLevel: logLevel.DEBUG, logCreator, sasl, retry });
  await { create, produce, consume }[command](kafka, ...rest);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
