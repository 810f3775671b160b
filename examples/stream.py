#!/usr/bin/env python3
"""Streams one completion from a server, with nothing but Python's standard library.

usage: stream.py URL PROMPT [MAX_TOKENS]

The prompt is a message of a chat. A model without a chat template completes it as a text instead.
"""
import json
import sys
import urllib.error
import urllib.request


def post(url, body):
    return urllib.request.urlopen(
        urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"}))


def answer(url, prompt, max_tokens):
    options = {"max_tokens": max_tokens, "temperature": 0.7, "stream": True}
    try:
        return post(url + "/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], **options})
    except urllib.error.HTTPError as refusal:
        error = json.load(refusal)["error"]
        if error["code"] != "no_chat_template":
            sys.exit(error["message"])
    return post(url + "/v1/completions", {"prompt": prompt, **options})


def main():
    url, prompt = sys.argv[1], sys.argv[2]
    with answer(url, prompt, int(sys.argv[3]) if len(sys.argv) > 3 else 400) as response:
        for line in response:
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            event = json.loads(line[len(b"data: "):])
            if "error" in event:
                sys.exit(event["error"]["message"])
            for choice in event["choices"]:
                text = choice["text"] if "text" in choice else choice["delta"].get("content")
                print(text or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
