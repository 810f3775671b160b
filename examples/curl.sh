#!/usr/bin/env bash
# Every endpoint of a server that generates, once, with curl. Prints each call before its answer, in a form that can be
# pasted; the exit code is that of the first call that fails.
#
#   examples/curl.sh [URL]       default http://127.0.0.1:8000
#
# Where the server wants a key, put it into QUIRE_API_KEY. It goes to curl through a file descriptor, because the words
# of a command line can be read by every user of the machine.
set -euo pipefail
url=${1:-http://127.0.0.1:8000}

request() { # PATH [arguments of curl…]
    local path=$1
    shift
    curl --silent --show-error --fail-with-body --no-buffer --header @<(
        [ -z "${QUIRE_API_KEY:-}" ] || printf 'Authorization: Bearer %s\n' "$QUIRE_API_KEY"
    ) "$@" "$url$path"
}

call() { # the same, and shows it
    local word
    printf '\n# curl %s%s' "$url" "$1"
    for word in "${@:2}"; do
        case $word in *[!a-zA-Z0-9/:._-]*) word=${word@Q} ;; esac
        printf ' %s' "$word"
    done
    printf '\n'
    request "$@"
    printf '\n'
}

json=(--header 'Content-Type: application/json' --data)

# Is it alive (/livez: the process; /health: and the engine makes progress), and does it take requests? Needs no key.
call /livez
call /health
call /readyz
call /version
call /load

# The model. Requests may name it in "model", and need not.
call /v1/models
name=$(request /v1/models | sed 's/.*"data":\[{"id":"\([^"]*\)".*/\1/')
call "/v1/models/$name"
call /props
call /slots
call /info
call /lora-adapters

# A completion; two choices with log-probabilities; a stream, with its usage at the end.
call /v1/completions "${json[@]}" '{"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}'
call /v1/completions "${json[@]}" \
    '{"prompt": "Once upon a time", "max_tokens": 4, "n": 2, "seed": 7, "temperature": 0.8, "logprobs": 2}'
call /v1/completions "${json[@]}" \
    '{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "stream": true,
      "stream_options": {"include_usage": true}}'

# The same in llama-server's own form.
call /completion "${json[@]}" '{"prompt": "Once upon a time", "n_predict": 8, "temperature": 0}'

# And in that of Text Generation Inference.
call /generate "${json[@]}" '{"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8, "details": true}}'
call /generate_stream "${json[@]}" '{"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8}}'

# Chat needs a chat template: the model file's own, or --chat-template NAME or FILE.
call /v1/chat/completions "${json[@]}" \
    '{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
      "max_tokens": 8, "temperature": 0}'
call /v1/chat/completions "${json[@]}" \
    '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0, "stream": true}'

# An answer that is as a schema says, or a call of a tool.
call /v1/chat/completions "${json[@]}" \
    '{"messages": [{"role": "user", "content": "Are you well?"}], "max_tokens": 8,
      "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"enum": ["yes", "no"]}}}}'

# Probabilities of given answers: to questions about a text, and of labels.
call /v1/systemone "${json[@]}" \
    '{"state": "Our checkout has returned 500 errors since 9am.", "questions": {
        "label": {"type": "choice", "instructions": "Which label fits this ticket?",
                  "criteria": {"billing": "Payments and refunds", "bug": "Software errors"}},
        "urgent": {"type": "noul", "instructions": "Is it urgent?"},
        "mood": {"type": "score", "instructions": "How angry is the customer?", "criteria": ["calm", "annoyed", "furious"]}}}'
call /classify "${json[@]}" '{"input": ["I was charged twice.", "The page is blank."], "labels": ["billing", "bug"]}'

# Anthropic's words for it, and how many tokens they have.
call /v1/messages "${json[@]}" '{"system": "Be brief.", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}'
call /v1/messages/count_tokens "${json[@]}" '{"messages": [{"role": "user", "content": "Hello"}]}'

# Ollama's: lines of JSON, where nobody says otherwise.
call / # "Quire is running"; a browser gets the web page
call /page/icon.svg
call /api/tags
call /api/ps
call /api/version
call /api/show "${json[@]}" "{\"model\": \"$name\"}"
call /api/chat "${json[@]}" '{"messages": [{"role": "user", "content": "Hello"}], "options": {"num_predict": 8, "temperature": 0}}'
call /api/generate "${json[@]}" '{"prompt": "Hello", "stream": false, "options": {"num_predict": 8, "temperature": 0}}'

# The same as items in and out.
call /v1/responses "${json[@]}" '{"instructions": "Be brief.", "input": "Hello", "max_output_tokens": 16, "temperature": 0}'

# A long conversation as a summary, from which the next request goes on.
call /v1/responses/compact "${json[@]}" '{"input": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]}'

# How long its prompt is, and what it is.
call /v1/chat/completions/input_tokens "${json[@]}" '{"messages": [{"role": "user", "content": "Hello"}]}'
call /v1/responses/input_tokens "${json[@]}" '{"input": "Hello"}'
call /apply-template "${json[@]}" '{"messages": [{"role": "user", "content": "Hello"}]}'

# Text to ids and back.
call /tokenize "${json[@]}" '{"prompt": "Once upon a time"}'
call /detokenize "${json[@]}" '{"tokens": [1, 300, 301]}'
call /tokenizer_info

# The engine: its requests, its steps, a page of the cache.
call '/v1/engine?pages=state'
call /v1/engine/pages/0

# Explains the cache for a prompt and for a past request, and estimates the time to the first token.
call /v1/completions -H 'X-Request-Id: explained' "${json[@]}" '{"prompt": "Once upon a time", "max_tokens": 2}'
call /v1/cache/explain "${json[@]}" '{"prompt": "Once upon a time"}'
call /v1/cache/explain/explained
call /v1/cache/events -N --max-time 1 || true # for routers: it goes on until the reader leaves
call /v1/estimate "${json[@]}" '{"prompt": "Once upon a time"}'

# Prometheus' text.
call /metrics
