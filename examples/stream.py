#!/usr/bin/env python3
"""Streams one completion from a server, with nothing but Python's standard library.

usage: stream.py URL PROMPT [MAX_TOKENS]
"""
import json
import sys
import urllib.request


def main():
    url, prompt = sys.argv[1], sys.argv[2]
    body = {"prompt": prompt, "max_tokens": int(sys.argv[3]) if len(sys.argv) > 3 else 128, "stream": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        for line in response:
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            event = json.loads(line[len(b"data: "):])
            if "error" in event:
                sys.exit(event["error"]["message"])
            for choice in event["choices"]:
                print(choice["text"], end="", flush=True)
    print()


if __name__ == "__main__":
    main()
