// The patterns by which byte-level vocabularies cut words, under llama.cpp's names for them. They are those of the models'
// own tokenizer.json files, written so that no text makes a match slow: what cannot match otherwise is possessive, and a
// search for white space at the end starts only where white space does.
#include "tokenizer_patterns.h"

#include "regex.h"

#define BLANKS "\\p{Z}\\t\\x{B}\\x{C}\\x{85}" // white space without the ends of lines

// A run of white space leaves its last one to the word that follows.
#define SPACE_RUN "[" REGEX_SPACES "]+(?![^" REGEX_SPACES "])|[" REGEX_SPACES "]+"
#define ENDS_OF_LINES "(?:[" BLANKS "]*+[\\r\\n]++)++" // \s*[\r\n]+ without backtracking
#define APOSTROPHE "(?i:'(?:[stmd]|re|ve|ll))"
#define GPT2 "'(?:[stmd]|re|ve|ll)| ?\\p{L}++| ?\\p{N}++| ?[^" REGEX_SPACES "\\p{L}\\p{N}]++|" SPACE_RUN

// Llama 3 and Qwen 2 differ in how many digits make a word.
#define WORDS_AND_SIGNS(digits)                                                                              \
    "[^\\r\\n\\p{L}\\p{N}]?\\p{L}++|" digits "| ?[^" REGEX_SPACES "\\p{L}\\p{N}]++[\\r\\n]*+|" ENDS_OF_LINES
#define LLAMA3(digits) APOSTROPHE "|" WORDS_AND_SIGNS(digits) "|" SPACE_RUN
#define AT_END(count) "[" REGEX_SPACES "]{" count "}(?![^" REGEX_SPACES "])|"
#define JAIS2_SPACES                                                                                         \
    AT_END("512")                                                                                            \
    AT_END("256")                                                                                            \
    AT_END("128")                                                                                            \
    AT_END("64") AT_END("32") AT_END("16") AT_END("8") AT_END("4") AT_END("1,2") "[" REGEX_SPACES "]"

// Words of GPT-4o and after: capitals first, or none; `end` follows letters.
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(upper, lower, end)                                                                             \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" end "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower "*" end
#define GPT4O(end, digits)                                                                                   \
    CASED(UPPER, LOWER, end)                                                                                 \
    "|" digits "| ?[^" REGEX_SPACES "\\p{L}\\p{N}]++[\\r\\n/]*+|" ENDS_OF_LINES "|" SPACE_RUN
// The same letters without Chinese ones: not what they are not.
#define NOT_LETTERS "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}"
#define KIMI CASED("[^\\p{Ll}" NOT_LETTERS "]", "[^\\p{Lu}\\p{Lt}" NOT_LETTERS "]", APOSTROPHE "?+")

#define HAN_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]++"
#define DEEPSEEK_CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]++"
#define DEEPSEEK3                                                                                            \
    "[!-/:-@\\[-`{-~][A-Za-z]++|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]++| "                              \
    "?[\\p{P}\\p{S}]++[\\r\\n]*+|" ENDS_OF_LINES "|" SPACE_RUN
#define BLOOM " ?[^(" REGEX_SPACES "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]++"

// Letters that have case, as DeepSeek's tokenizer.json lists them.
#define DEEPSEEK_LETTERS                                                                                     \
    "[" REGEX_SPACES "]?["                                                                                   \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"          \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}"                    \
    "\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}"          \
    "\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"          \
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"        \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}"         \
    "\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}"         \
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}"        \
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}"          \
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"                   \
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"                   \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"         \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"        \
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"                       \
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"                   \
    "\\x{1E900}-\\x{1E943}"                                                                                  \
    "]++"

#define AFMOE_CJK                                                                                            \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{8C48}-\\x{FAFF}\\x{3040}-\\x{30FF}\\x{FF65}-\\x{FF9F}"       \
    "\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}"          \
    "\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]++"

const struct pre_kind pre_kinds[] = {
    {.names = "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe "
              "gigachat a.x-4.0 "
              "mellum exaone4 jais trillion granite-docling",
     .patterns = {GPT2}},
    {.names = "olmo mpt modern-bert", .nfc = true, .patterns = {GPT2}}, // GPT-NeoX
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .ignore_merges = true,
     .add_bos = true,
     .patterns = {LLAMA3("\\p{N}{1,3}+")}},
    {.names = "qwen2 deepseek-r1-qwen megrez f2llmv2", .nfc = true, .patterns = {LLAMA3("\\p{N}")}},
    {.names = "stablelm2 hunyuan kormo grok-2 solar-open", .patterns = {LLAMA3("\\p{N}")}},
    {.names = "laguna", .patterns = {"[^\\n]++|[\\n]++", LLAMA3("\\p{N}")}},
    {.names = "dbrx smaug-bpe glm4 chatglm-bpe", .patterns = {LLAMA3("\\p{N}{1,3}+")}},
    {.names = "minicpm5", .ignore_merges = true, .patterns = {"\\p{N}{1,3}+", LLAMA3("\\p{N}++")}},
    {.names = "qwen35",
     .nfc = true,
     .patterns = {APOSTROPHE "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]++|\\p{N}| ?[^" REGEX_SPACES
                             "\\p{L}\\p{M}\\p{N}]++[\\r\\n]*+|" ENDS_OF_LINES "|" SPACE_RUN}},
    {.names = "seed-coder",
     .patterns = {APOSTROPHE "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}++|\\p{N}| ?[^" REGEX_SPACES
                             "\\p{L}\\p{N}\\r\\n]++|" ENDS_OF_LINES "|" SPACE_RUN}},
    {.names = "bailingmoe bailingmoe2 llada-moe",
     .patterns = {APOSTROPHE "|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}| ?[^" REGEX_SPACES
                             "\\p{L}\\p{N}]++[\\r\\n]*+|" ENDS_OF_LINES "|" SPACE_RUN}},
    {.names = "exaone-moe",
     .patterns = {APOSTROPHE
                  "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}| ?[^" REGEX_SPACES
                  "\\p{L}\\p{N}]++[\\r\\n/]?+|" ENDS_OF_LINES "|" SPACE_RUN}},
    {.names = "jais-2", .patterns = {APOSTROPHE "|" WORDS_AND_SIGNS("\\p{N}{1,3}+") "|" JAIS2_SPACES}},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2",
     .patterns = {GPT4O(APOSTROPHE "?+", "\\p{N}{1,3}+")}},
    {.names = "granite-embed-multi-97m",
     .ignore_merges = true,
     .patterns = {GPT4O(APOSTROPHE "?+", "\\p{N}{1,3}+")}},
    {.names = "tekken", .ignore_merges = true, .add_bos = true, .patterns = {GPT4O("", "\\p{N}")}},
    {.names = "youtu",
     .ignore_merges = true,
     .patterns = {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]++|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}"
                  "\\x{2019}\\x{2014}"
                  "\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]++|[\\x{3105}-\\x{312F}]"
                  "++|" HAN_KANA,
                  GPT4O(APOSTROPHE "?+", "\\p{N}")}},
    {.names = "kimi-k2",
     .patterns = {"\\p{Han}++|" KIMI "|\\p{N}{1,3}+| ?[^" REGEX_SPACES
                  "\\p{L}\\p{N}]++[\\r\\n]*+|" ENDS_OF_LINES "|" SPACE_RUN}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm", .patterns = {"\\p{N}{1,3}+", HAN_KANA, DEEPSEEK3}},
    {.names = "deepseek-llm",
     .patterns = {"[\\r\\n]", DEEPSEEK_LETTERS,
                  "[" REGEX_SPACES
                  "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]++",
                  "(?<![" REGEX_SPACES "])[" REGEX_SPACES "]++\\z", DEEPSEEK_CJK, "\\p{N}++"}},
    {.names = "deepseek-coder",
     .patterns = {"[\\r\\n]", "[" REGEX_SPACES "]?\\p{L}++", "[" REGEX_SPACES "]?\\p{P}++", DEEPSEEK_CJK,
                  "\\p{N}"}},
    {.names = "starcoder refact command-r smollm exaone codeshell minerva-7b mellum2",
     .patterns = {"\\p{N}", GPT2}},
    {.names = "bloom poro-chat gpt3-finnish", .patterns = {BLOOM}},
    {.names = "viking", .patterns = {BLOOM, "\\p{N}"}},
    {.names = "tiny_aya cohere2moe",
     .digits = "(?<!\\p{Nd})\\p{Nd}++(?![" REGEX_WORD "])",
     .patterns = {GPT4O(APOSTROPHE "?+", "\\p{N}{1,3}+")}},
    {.names = "afmoe", .digits = "\\p{Nd}++", .patterns = {AFMOE_CJK, DEEPSEEK3}},
    {.names = "superbpe", .digits = "\\p{Nd}++", .joined = true, .patterns = {"\\p{N}++"}},
    {.names = "chameleon",
     .add_bos = true,
     .patterns = {"<sentinel:[0-9]++>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",
                  "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    {.names = "falcon", .patterns = {"[\\p{P}$+<=>^~|`]++", GPT2, "[0-9][0-9][0-9]"}},
    {.names = "default", .patterns = {"[\\p{P}$+<=>^~|]++", GPT2, "\\p{N}++", "[0-9][0-9][0-9]"}},
};
const int num_pre_kinds = sizeof pre_kinds / sizeof pre_kinds[0];
