import bearlake.stream.v1.AdminGrpc;
import bearlake.stream.v1.ConsumerGrpc;
import bearlake.stream.v1.CreateStreamRequest;
import bearlake.stream.v1.Credit;
import bearlake.stream.v1.FetchRequest;
import bearlake.stream.v1.FetchResponse;
import bearlake.stream.v1.Payload;
import bearlake.stream.v1.Position;
import bearlake.stream.v1.ProduceStreamRequest;
import bearlake.stream.v1.ProduceStreamResponse;
import bearlake.stream.v1.ProducerGrpc;
import bearlake.stream.v1.Record;
import bearlake.stream.v1.Records;
import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.StreamObserver;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** HOST:PORT STREAM COUNT: creates the stream, writes records with ProduceStream, reads them with Fetch, prints "offset key value". */
public final class RoundTrip {
  public static void main(String[] words) throws Exception {
    String stream = words[1];
    int count = Integer.parseInt(words[2]);
    ManagedChannel channel = NettyChannelBuilder.forTarget(words[0]).usePlaintext().build();
    AdminGrpc.newBlockingStub(channel)
        .createStream(CreateStreamRequest.newBuilder().setName(stream).setPartitionCount(1).build());
    write(ProducerGrpc.newStub(channel), stream, count);
    read(ConsumerGrpc.newStub(channel), stream, count);
    channel.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
  }

  private static void write(ProducerGrpc.ProducerStub producer, String stream, int count) throws Exception {
    AtomicLong acknowledged = new AtomicLong();
    CompletableFuture<Void> done = new CompletableFuture<>();
    StreamObserver<ProduceStreamRequest> call =
        producer.produceStream(
            new Ending<ProduceStreamResponse>(done) {
              @Override
              public void onNext(ProduceStreamResponse answer) {
                acknowledged.set(answer.getAcknowledgedCount());
              }
            });
    for (int at = 0; at < count; at++) {
      Record record =
          Record.newBuilder()
              .setKey(ByteString.copyFromUtf8("java"))
              .setValue(ByteString.copyFromUtf8("hello " + at))
              .build();
      call.onNext(
          ProduceStreamRequest.newBuilder()
              .setStream(stream)
              .setPayload(Payload.newBuilder().setRecords(Records.newBuilder().addRecords(record)))
              .build());
    }
    call.onCompleted();
    done.get(30, TimeUnit.SECONDS);
    if (acknowledged.get() != count) {
      throw new IllegalStateException(acknowledged + " of " + count + " batches were acknowledged");
    }
  }

  private static void read(ConsumerGrpc.ConsumerStub consumer, String stream, int count) throws Exception {
    AtomicLong seen = new AtomicLong();
    CompletableFuture<Void> all = new CompletableFuture<>();
    StreamObserver<FetchRequest> call =
        consumer.fetch(
            new Ending<FetchResponse>(all) {
              @Override
              public void onNext(FetchResponse answer) {
                for (Record record : answer.getPayload().getRecords().getRecordsList()) {
                  System.out.println(
                      record.getOffset() + " " + record.getKey().toStringUtf8() + " " + record.getValue().toStringUtf8());
                  if (seen.incrementAndGet() == count) {
                    all.complete(null);
                  }
                }
              }
            });
    call.onNext(
        FetchRequest.newBuilder()
            .addAssign(Position.newBuilder().setStream(stream).setEarliest(true))
            .setCredit(Credit.newBuilder().setBytes(1 << 20).setMessages(1 << 20))
            .build());
    all.get(30, TimeUnit.SECONDS);
    call.onCompleted();
  }

  private abstract static class Ending<T> implements StreamObserver<T> {
    private final CompletableFuture<Void> done;

    Ending(CompletableFuture<Void> done) {
      this.done = done;
    }

    @Override
    public void onError(Throwable error) {
      done.completeExceptionally(error);
    }

    @Override
    public void onCompleted() {
      done.complete(null);
    }
  }
}
