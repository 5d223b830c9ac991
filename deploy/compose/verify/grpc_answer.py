"""Ask once with the typed gRPC face: grpc_answer.py HOST:PORT KEY MODEL. Exits 1 unless text, a finish and usage arrive."""

import sys

import grpc

from inferway.edge.v1 import inference_pb2, inference_pb2_grpc

TIMEOUT_S = 60


def main(address: str, key: str, model: str) -> None:
    """Print the text as it arrives."""
    start = inference_pb2.GenerateStart(
        model=model, max_completion_tokens=16, messages=[inference_pb2.ChatMessage(role="user", content="Say hello.")]
    )
    with grpc.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        metadata = (("authorization", f"Bearer {key}"),)
        kinds = set()
        for answer in stub.Generate(iter([inference_pb2.GenerateRequest(start=start)]), timeout=TIMEOUT_S, metadata=metadata):
            kinds.add(answer.WhichOneof("event"))
            print(answer.delta.text, end="", flush=True)
    sys.exit(0 if kinds == {"accepted", "delta", "finished", "usage"} else f"incomplete answer: {sorted(kinds)}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
