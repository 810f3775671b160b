#!/usr/bin/env python3
"""The official openai client against a server: chat whole and streamed, log-probabilities, and errors.

usage: openai_client.py [URL]       default http://127.0.0.1:8000

Needs `pip install openai`. Where the server wants a key, put it into OPENAI_API_KEY. The model needs a chat template.
"""
import math
import os
import sys

import openai

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Tell me a story about a quire of paper."},
]


def chat(client, model):
    answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=32, temperature=0)
    choice = answer.choices[0]
    print("chat:", repr(choice.message.content))
    print(f"  ended by {choice.finish_reason}; {answer.usage.prompt_tokens} tokens in, "
          f"{answer.usage.prompt_tokens_details.cached_tokens} of them cached; {answer.usage.completion_tokens} out")
    return choice.message.content


def chat_streamed(client, model):
    """The text in pieces as they are made; the usage comes last, in a chunk without choices."""
    stream = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=32, temperature=0, stream=True,
                                            stream_options={"include_usage": True})
    pieces = []
    for chunk in stream:
        for choice in chunk.choices:
            if choice.delta.content:
                pieces.append(choice.delta.content)
        if chunk.usage:
            print(f"streamed: {len(pieces)} pieces, {chunk.usage.completion_tokens} tokens")
    return "".join(pieces)


def logprobs(client, model):
    """How sure the model was of each token, and what else it thought of."""
    answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=4, temperature=0, logprobs=True,
                                            top_logprobs=3)
    for entry in answer.choices[0].logprobs.content:
        others = ", ".join(f"{top.token!r} {math.exp(top.logprob):.3f}" for top in entry.top_logprobs)
        print(f"logprobs: {entry.token!r} with p = {math.exp(entry.logprob):.3f} of {others}")


def fields_beyond_openai(client, model):
    """Fields that vLLM knows and OpenAI does not go through extra_body."""
    answer = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, seed=7,
                                       extra_body={"top_k": 20, "min_p": 0.05, "ignore_eos": True})
    print("completion:", repr(answer.choices[0].text))


def errors(client, model):
    """Statuses become exceptions. The client itself tries again on 429, 5xx and lost connections (max_retries)."""
    try:
        client.chat.completions.create(model=model, messages=MESSAGES, temperature=3)
    except openai.BadRequestError as e:  # 400: do not send it again
        print(f"BadRequestError: {e.param}: {e.message}")
    try:
        client.completions.create(model=model, prompt=[1] * 1_000_000, max_tokens=1)
    except openai.BadRequestError as e:
        print(f"BadRequestError: {e.code}")
    try:
        client.chat.completions.create(model="no-such-model", messages=MESSAGES)
    except openai.NotFoundError as e:  # 404
        print(f"NotFoundError: {e.code}")
    try:
        client.with_options(api_key="a-wrong-key").models.list()
        print("this server asks for no key")
    except openai.AuthenticationError as e:  # 401
        print(f"AuthenticationError: {e.code}")
    # Also: openai.InternalServerError (503 while loading, overloaded or shutting down; Retry-After says when to come
    # again), openai.APITimeoutError, openai.APIConnectionError.


def main():
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    key = os.environ.get("OPENAI_API_KEY") or "none"
    with openai.OpenAI(base_url=url + "/v1", api_key=key, timeout=120) as client:
        model = client.models.list().data[0].id
        print("model:", model)
        if chat(client, model) != chat_streamed(client, model):
            sys.exit("streamed or not, the text should be the same")
        logprobs(client, model)
        fields_beyond_openai(client, model)
        errors(client, model)


if __name__ == "__main__":
    main()
