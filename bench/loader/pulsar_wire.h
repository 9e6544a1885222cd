/* As much of Pulsar's binary protocol as a load generator needs: frames, and fields of protobuf messages.
 *
 *   command          total u32 | command u32 | BaseCommand
 *   with a message   total u32 | command u32 | BaseCommand | 0x0e01 | CRC32C u32 | metadata u32 | metadata | payload
 *
 * A batch's payload is, for each message, size u32 | SingleMessageMetadata | payload.
 * Source: Pulsar binary protocol specification (framing, PulsarApi.proto), Protocol Buffers encoding. */
#ifndef BENCH_PULSAR_WIRE_H
#define BENCH_PULSAR_WIRE_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { /* BaseCommand.type, which is also the number of the field with the command */
  SUBSCRIBE = 4, PRODUCER = 5, SEND = 6, SEND_RECEIPT = 7, SEND_ERROR = 8, MESSAGE = 9, ACK = 10, FLOW = 11,
  ERROR = 14, PING = 18, PONG = 19
};
enum { COMMAND_TYPE = 1 };
enum { SEND_SEQUENCE = 2, SEND_HIGHEST = 6 };
enum { RECEIPT_SEQUENCE = 2, RECEIPT_ID = 3 };
enum { ERROR_TEXT_OF_ERROR = 3, ERROR_TEXT_OF_SEND = 4 };
enum { MESSAGE_ID = 2, MESSAGE_REDELIVERIES = 3 };
enum { METADATA_SEQUENCE = 2, METADATA_COUNT = 11, METADATA_HIGHEST = 24 };
enum { SINGLE_PAYLOAD_BYTES = 3, SINGLE_SEQUENCE = 8 };
enum { ID_LEDGER = 1 };
enum { SEQUENCE_BYTES = 5 }; /* a sequence id is patched in place: varints from 2^28 to 2^35 - 1 */

static const uint64_t NO_LEDGER = UINT64_MAX; /* of the receipt of a duplicate */

static uint32_t get32(const uint8_t *b) { uint32_t v; memcpy(&v, b, 4); return be32toh(v); }
static void put32(uint8_t *b, uint32_t v) { v = htobe32(v); memcpy(b, &v, 4); }

typedef struct { uint8_t *at, *end; } span;

static bool take_varint(span *s, uint64_t *value) {
  *value = 0;
  for (int shift = 0; shift < 64 && s->at < s->end; shift += 7) {
    uint8_t byte = *s->at++;
    *value |= (uint64_t)(byte & 127) << shift;
    if (!(byte & 128)) return true;
  }
  return false;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
  for (; value > 127; value >>= 7) *at++ = (uint8_t)(value | 128);
  *at++ = (uint8_t)value;
  return at;
}

/* The first field `number` of a message: the varint's bytes, or those of a length-delimited one; false when there is none, or
 * the message is malformed. */
static bool find_field(span message, unsigned number, span *content) {
  uint64_t key, value;
  while (message.at < message.end && take_varint(&message, &key)) {
    content->at = message.at;
    switch (key & 7) {
      case 0:
        if (!take_varint(&message, &value)) return false;
        break;
      case 2:
        if (!take_varint(&message, &value) || value > (uint64_t)(message.end - message.at)) return false;
        content->at = message.at;
        message.at += value;
        break;
      default: return false; /* fixed sizes do not occur here */
    }
    content->end = message.at;
    if (key >> 3 == number) return true;
  }
  return false;
}

/* A varint field's value, or `otherwise`. */
static uint64_t find_number(span message, unsigned number, uint64_t otherwise) {
  span content;
  uint64_t value;
  return find_field(message, number, &content) && take_varint(&content, &value) ? value : otherwise;
}

typedef struct {
  unsigned type;
  span command; /* of this type, without BaseCommand */
  span message; /* behind it: from its magic on */
} frame;

/* Parses a frame of `size` bytes, its total size included. */
static bool read_frame(uint8_t *at, size_t size, frame *f) {
  if (size < 8 || get32(at + 4) > size - 8) return false;
  span base = {at + 8, at + 8 + get32(at + 4)};
  f->type = (unsigned)find_number(base, COMMAND_TYPE, 0);
  f->message = (span){base.end, at + size};
  return f->type && find_field(base, f->type, &f->command);
}

/* The metadata of a message, and its payload; clients' and servers' messages here have checksums. */
static bool read_message(span message, span *metadata, span *payload) {
  size_t size = (size_t)(message.end - message.at);
  if (size < 10 || message.at[0] != 0x0e || message.at[1] != 0x01 || get32(message.at + 6) > size - 10) return false;
  *metadata = (span){message.at + 10, message.at + 10 + get32(message.at + 6)};
  *payload = (span){metadata->end, message.end};
  return true;
}

#endif
