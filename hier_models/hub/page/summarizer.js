// Summaries in the browser, greedily: what the pipeline "summarization" of hier_models does with a HAT-BART whose
// tokenizer is an uncased WordPiece. `page.json`, which the export writes, says what differs between checkpoints.

export const VERSION = 3;

// Files

/** Load what `hier-models export --page` wrote. `ort` is onnxruntime-web; `report(share)` hears how far it is. */
export async function load(ort, folder, report = () => {}) {
  const url = (name, key = "") => new URL(`${name}${key && `?${key}`}`, folder).href;
  const page = JSON.parse(new TextDecoder().decode(await read(url("page.json"), "page.json")));
  if (page.version !== VERSION) {
    throw new Error(`page.json is of version ${page.version}, and this page reads version ${VERSION}. Copy the whole folder that hier-models export --page wrote, and reload without the cache.`);
  }
  const files = {}, total = Object.values(page.files).reduce((sum, file) => sum + file.bytes, 0);
  let before = 0;
  for (const [name, { bytes, key }] of Object.entries(page.files)) {
    files[name] = await read(url(name, key), name, (read) => report((before + Math.min(read, bytes)) / total));
    if (files[name].length !== bytes) {
      throw new Error(`${name} has ${files[name].length} bytes and not ${bytes}: it is of another version. Copy the whole folder that hier-models export --page wrote.`);
    }
    before += bytes;
  }
  report(1);
  const externalData = [{ path: "shared.bin", data: files["shared.bin"] }];
  const sessions = {};
  for (const name of ["encoder", "decoder"]) {
    try {
      sessions[name] = await ort.InferenceSession.create(files[`${name}.onnx`], { executionProviders: ["wasm"], externalData });
    } catch (error) {
      throw new Error(`onnxruntime-web cannot load ${name}.onnx: ${error.message ?? error}. Export the page again.`);
    }
  }
  const settings = JSON.parse(new TextDecoder().decode(files["onnx.json"]));
  const tokenizer = new Tokenizer(JSON.parse(new TextDecoder().decode(files["tokenizer.json"])));
  return new Summarizer(ort, sessions, tokenizer, { ...page, ...settings });
}

async function read(url, name, report) {
  let response;
  try { response = await fetch(url, report ? {} : { cache: "no-cache" }); } catch { throw new Error(`${name} cannot be loaded: the server does not answer.`); }
  if (!response.ok) {
    throw new Error(`${name} is missing on the server (${response.status}). Copy the whole folder that hier-models export --page wrote.`);
  }
  const parts = [], reader = response.body.getReader();
  let length = 0;
  for (let part; !(part = await reader.read()).done;) {
    parts.push(part.value);
    report?.(length += part.value.length);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

// Tokens: signs read as others, BERT's normalizer, words and signs, and the longest pieces

const PUNCTUATION = "!-\\/:-@\\[-`{-~\\p{P}";
const WORDS = new RegExp(`[${PUNCTUATION}]|[^\\p{White_Space}${PUNCTUATION}]+`, "gu");
const CHINESE = /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;

export class Tokenizer {
  constructor({ model, added_tokens, normalizer, pre_tokenizer }) {
    this.readAs = (normalizer.normalizers ?? []).filter(({ type }) => type === "Replace").map(({ pattern, content }) => [pattern.String, content]);
    this.parted = (pre_tokenizer.pretokenizers ?? []).filter(({ type }) => type === "Split").map(({ pattern, behavior }) => new RegExp(behavior === "Removed" ? pattern.Regex : `(${pattern.Regex})`, "gu")); // what is in brackets stays
    this.ids = new Map(Object.entries(model.vocab));
    this.pieces = [];
    for (const [piece, id] of this.ids) this.pieces[id] = piece;
    this.prefix = model.continuing_subword_prefix;
    this.most = model.max_input_chars_per_word;
    this.unknown = this.ids.get(model.unk_token);
    for (const { id, content } of added_tokens) this.pieces[id] ??= content; // which the vocabulary may not have
    this.special = new Set(added_tokens.filter((token) => token.special).map((token) => token.id));
    this.known = new Map();
  }

  /** Words and signs, without capitals and accents. */
  words(text) {
    for (const [sign, meant] of this.readAs) text = text.replaceAll(sign, meant);
    const plain = text.replace(/[\0\ufffd]|(?![\t\n\r])[\p{Cc}\p{Cf}\p{Cs}\p{Co}]/gu, "").replace(CHINESE, " $& ").normalize("NFD");
    // Sign by sign, as a final sigma is none here.
    const words = plain.replace(/\p{Mn}/gu, "").replace(/\p{Changes_When_Lowercased}/gu, (sign) => sign.toLowerCase()).match(WORDS) ?? [];
    return this.parted.reduce((found, between) => found.flatMap((word) => word.split(between).filter(Boolean)), words);
  }

  encode(text) {
    return this.words(text).flatMap((word) => {
      if (!this.known.has(word)) this.known.set(word, this.divide(word));
      return this.known.get(word);
    });
  }

  divide(word) {
    if ([...word].length > this.most) return [this.unknown];
    const ids = [];
    for (let start = 0, end; start < word.length; start = end) {
      const prefix = start ? this.prefix : "";
      for (end = word.length; end > start && !this.ids.has(prefix + word.slice(start, end)); end--);
      if (end === start) return [this.unknown];
      ids.push(this.ids.get(prefix + word.slice(start, end)));
    }
    return ids;
  }

  /** What a token writes, with the space before it; null for special ones. */
  text(id) {
    const piece = this.pieces[id];
    if (this.special.has(id)) return null;
    if (!this.ids.has(piece)) return piece;
    return piece.startsWith(this.prefix) ? piece.slice(this.prefix.length) : ` ${piece}`;
  }

  decode(ids) {
    return ids.map((id) => this.text(id) ?? "").join("").replace(/ ([.?!,])/g, "$1").trim();
  }
}

// Sentences

/** Where the sentences of a text begin and end. A line break alone ends none; an abbreviation and an initial neither. */
export function sentences(text, abbreviations) {
  const segmenter = new Intl.Segmenter("en", { granularity: "sentence" }), spans = [];
  let goesOn = false;
  for (const paragraph of text.matchAll(/[^]+?(?:\n[ \t\r]*\n|\u2029|$)/g)) {
    goesOn = false;
    for (const { segment, index } of segmenter.segment(paragraph[0].replace(/\s/g, " "))) {
      const sentence = segment.trim();
      if (!sentence) continue;
      const start = paragraph.index + index + segment.indexOf(sentence), end = start + sentence.length;
      if (goesOn || (spans.length && start > paragraph.index && /^\p{Ll}/u.test(sentence) && /["'”’»)\]]$|\.$/.test(text.slice(...spans.at(-1))))) spans.at(-1)[1] = end;
      else spans.push([start, end]);
      const word = sentence.match(/(?:^|[\s([{"'“‘])([^\s([{"'“‘]+)\.$/u)?.[1].toLowerCase();
      goesOn = word !== undefined && (/^\p{L}$/u.test(word) || abbreviations.has(word));
    }
  }
  return spans;
}

const MOST_TIMES = 2; // that a heading stands in a text: a name of who speaks does more often
// A line of at most ten words without an end; what somebody says, behind a name, is none, nor half a sentence.
const HEADING = /^(?![^:]{1,40}:\s)\S+(?:\s+\S+){0,9}(?<![.!?…:,;])(?<!(?<![\p{L}\p{N}_])(?:a|an|as|at|be|by|in|is|of|on|or|to|and|are|for|had|has|her|his|its|the|was|who|been|from|have|that|were|with|their|which))$/iu;

/** Headings on lines of their own apart from the sentences after them: before a line that is more than twice as long as each. */
function apart(spans, text) {
  const times = new Map();
  for (const line of text.split("\n")) times.set(line.trim(), (times.get(line.trim()) ?? 0) + 1);
  return spans.flatMap(([start, end]) => {
    const before = text.slice(Math.max(0, start - 80), start).replace(/[ \t\r.0-9]+$/, "");
    if (before && !before.endsWith("\n")) return [[start, end]];
    const lines = [...text.slice(start, end).matchAll(/\S(?:[^\n]*\S)?/g)].map((line) => [start + line.index, start + line.index + line[0].length]);
    let number = 0, longest = 0;
    for (let n = 1; n < lines.length; n++) {
      const line = text.slice(...lines[n - 1]), stop = text.indexOf("\n", lines[n][0]);
      if (!HEADING.test(line) || times.get(line) > MOST_TIMES || /^[\p{Ll}\d]/u.test(text.slice(lines[n][0], lines[n][0] + 2))) break;
      longest = Math.max(longest, line.length);
      if ((stop < 0 ? text.length : stop) - lines[n][0] > 2 * longest) number = n;
    }
    return [...lines.slice(0, number), [number ? lines[number][0] : start, end]];
  });
}

// A document that is too long: its beginning, and the sentences that a summary would be made of

function condense(spans, text, room, count, settings, common) {
  const cut = (sentence) => {
    const size = count(sentence);
    return size <= room >> 1 ? [sentence] : wrap(sentence, Math.max(1, Math.floor(sentence.length * room / (4 * size))));
  };
  const parts = inParagraphs(spans, text, cut, count);
  const { leftOut, noChoice } = noSentences(parts), begins = [];
  let total = 0, left = room;
  parts.forEach((part, place) => {
    if (leftOut.has(place) || (total += part.size) > Math.floor(room / 3)) return;
    begins.push(place);
    left -= part.size;
  });
  const own = bestSentences(parts, salience(parts.map((part) => part.text), settings, common), left, new Set([...noChoice, ...begins]));
  return [joined(begins.map((place) => parts[place])), ...own.map((place) => parts[place].text)].filter(Boolean);
}

// The end of a sentence, with what may stand behind it.
const CLOSERS = /["'”’“«»)\]」』） \u00a0\u202f]+$/u;
const hasEnd = (text, ends = /[.!?…。！？।॥۔؟]$/u) => ends.test(text.replace(CLOSERS, ""));

// Of a sentence that stands alone, words; and tokens of sentences, to read nothing else.
const LEAST_WORDS = 5, ENOUGH = 128;

/** Headings and items of lists, and what says too little; none if there is hardly anything else. */
function noSentences(parts) {
  const places = [...parts.keys()];
  const isLong = (place) => parts[place].text.split(/\s+/).length >= LEAST_WORDS;
  const isEnded = (place) => hasEnd(parts[place].text) || (isLong(place) && hasEnd(parts[place].text, /:$/));
  const sum = (own) => own.reduce((total, place) => total + parts[place].size, 0);
  const ended = places.filter(isEnded), whole = new Set(ended.filter(isLong));
  if (sum([...whole]) < Math.min(ENOUGH, sum(places) / 2)) return { leftOut: new Set(), noChoice: new Set() };
  return { leftOut: new Set(places.filter((place) => !isEnded(place))), noChoice: new Set(places.filter((place) => !whole.has(place))) };
}

/** A text without headings and items of lists, if there are enough sentences beside them. */
function onlySentences(spans, text, count) {
  const parts = inParagraphs(spans, text, (sentence) => [sentence], count), { leftOut } = noSentences(parts);
  return leftOut.size ? joined(parts.filter((_, place) => !leftOut.has(place))) : text;
}

/** What sentences are cut into, with its size and the number of its paragraph. */
function inParagraphs(spans, text, cut, count) {
  let paragraph = 0;
  return spans.flatMap(([start, end], n) => {
    if (n && /\n\s*\n/.test(text.slice(spans[n - 1][1], start))) paragraph++;
    return cut(text.slice(start, end)).map((piece) => ({ text: piece.trim(), size: count(piece), paragraph }));
  });
}

/** Sentences as one text, with their paragraphs. */
function joined(parts) {
  return parts.map((part, n) => (n ? (parts[n - 1].paragraph === part.paragraph ? " " : "\n\n") : "") + part.text).join("");
}

/** Lines of at most so many characters, broken at spaces where there are any. */
function wrap(text, width) {
  const lines = [];
  for (let word of text.split(/\s+/)) {
    if (lines.length && lines.at(-1).length + 1 + word.length <= width) lines[lines.length - 1] += ` ${word}`;
    else for (; word; word = word.slice(width)) lines.push(word.slice(0, width));
  }
  return lines;
}

/** How much each sentence is worth to a summary: pipelines/salience_hier.py. */
function salience(parts, { weights, cues, common }, words) {
  const everywhere = common ? new Set(common) : words;
  const counts = parts.map((part) => {
    const count = new Map();
    for (const word of part.normalize("NFC").toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? []) count.set(word, (count.get(word) ?? 0) + 1);
    return count;
  });
  const documents = new Map(), sums = new Map(), totals = new Map(), add = (map, word, value) => map.set(word, (map.get(word) ?? 0) + value);
  for (const count of counts) for (const [word, times] of count) {
    add(documents, word, 1);
    add(totals, word, times);
  }
  const sum = (count, value) => [...count].reduce((total, [word, times]) => total + value(word, times), 0);
  const vectors = counts.map((count) => {
    const weight = (word, times) => times * Math.log(parts.length / documents.get(word));
    const length = Math.max(1e-12, Math.sqrt(sum(count, (word, times) => weight(word, times) ** 2)));
    const vector = new Map([...count].map(([word, times]) => [word, weight(word, times) / length]));
    for (const [word, value] of vector) add(sums, word, value);
    return vector;
  });
  const centrality = rank(vectors.map((vector) => sum(vector, (word, value) => value * sums.get(word))));
  const commonness = rank(counts.map((count) => {
    const own = new Map([...count].filter(([word]) => !everywhere.has(word)));
    return sum(own, (word, times) => times * totals.get(word)) / Math.max(1, sum(own, (_, times) => times));
  }));
  return counts.map((count, place) => {
    const end = parts.length - 1 - place;
    const places = [...[2, 8, 30].map((far) => -place / far), ...[3, 30].map((far) => -end / far)].map(Math.exp);
    const found = [...places, centrality[place], commonness[place], Math.log1p(sum(count, (_, times) => times))];
    return found.reduce((total, value, n) => total + weights[n] * value, sum(count, (word) => Object.hasOwn(cues, word) ? cues[word] : 0)) / 100;
  });
}

/** What share of the others is lower. */
function rank(values) {
  values = values.map((value) => Math.round(value * 1e9) / 1e9);
  const sorted = [...values].sort((a, b) => a - b), first = new Map();
  sorted.forEach((value, n) => { if (!first.has(value)) first.set(value, n); });
  return values.map((value) => first.get(value) / Math.max(1, values.length - 1));
}

/** The sentences of the highest worth, each text once, as many as there is room for. */
function bestSentences(parts, worth, room, besides) {
  const seen = new Set([...besides].map((place) => parts[place].text)), kept = [];
  for (const place of [...parts.keys()].sort((a, b) => worth[b] - worth[a])) {
    const { text, size } = parts[place];
    if (size > room || seen.has(text)) continue;
    seen.add(text);
    kept.push(place);
    room -= size;
  }
  return kept.sort((a, b) => a - b);
}

/** Cut a text into at most so many parts between its sentences, about as long; a token of a better sentence counts for more. */
function partsOf(split, text, number, count, worth) {
  const least = [...worth.values()].reduce((low, own) => Math.min(low, own), Infinity);
  const size = (sentence) => count(sentence) * Math.exp(2 * (worth.get(sentence.trim()) ?? least));
  const spans = split(text), sizes = spans.map((span) => size(text.slice(...span))), parts = new Map();
  const total = sizes.reduce((sum, size) => sum + size, 0);
  let until = 0;
  spans.forEach(([start, end], n) => {
    until += sizes[n];
    const part = Math.floor((until - sizes[n] / 2) * number / total); // where its middle lies
    parts.set(part, [parts.get(part)?.[0] ?? start, end]);
  });
  return parts.size ? [...parts.values()].map((span) => text.slice(...span)) : [text];
}

// Faithful decoding: numbers, names and rare words only if the document has them

const NEVER = 127; // more tokens than any word still needs
const UNSPACED = "\\u3040-\\u30ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u{20000}-\\u{3ffff}";
const WORD = new RegExp(`((?:(?![${UNSPACED}])[\\p{L}\\p{N}\\p{M}\\u200c\\u200d])+)`, "u");
const SIGNS = new Set(".,;:!?'\"()-–—‘’“”„«»…¿¡");

/** Words, sorted: those with the same beginning stand together. */
class Words {
  constructor(words) {
    this.known = new Set([...words].filter((word) => word.length <= 100));
    this.sorted = [...this.known].sort();
  }

  /** What is left of every longer word that begins so. */
  * rests(beginning) {
    let low = 0, high = this.sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.sorted[middle] <= beginning) low = middle + 1; else high = middle;
    }
    for (; low < this.sorted.length && this.sorted[low].startsWith(beginning); low++) yield this.sorted[low].slice(beginning.length);
  }
}

/** How tokens make up words, and which words may always be written. */
class WordPieces {
  constructor(tokenizer, common) {
    this.tokenizer = tokenizer;
    this.texts = tokenizer.pieces.map((_, id) => tokenizer.text(id));
    this.behind = new Map(); // the word that a token begins, behind another word -> tokens; "" for none
    this.inside = new Map(); // what a word may go on with -> tokens
    this.conditions = []; // of tokens: signs and whole words that they write
    this.ends = this.texts.map((text, id) => this.add(text, id));
    this.needed = new Map([["", 0]]);
    this.common = new Words(common);
    this.commonBehind = this.find(this.behind, "", this.common);
    this.commonInside = this.find(this.inside, "", this.common);
  }

  /** Sort a token under the words that it begins or goes on with; say which word it ends with, and whether it begins there. */
  add(text, id) {
    const put = (table, key) => table.has(key) ? table.get(key).push(id) : table.set(key, [id]);
    if (!text) return ["", false];
    const [first, ...parts] = text.split(WORD); // signs, word, signs, …
    const last = parts.length && !parts.at(-1) ? parts.at(-2) : "", isWord = parts.length === 2 && last;
    if (parts.length && !first) {
      if (isWord) put(this.inside, last);
      return [last, !isWord];
    }
    const signs = [...[first, ...parts.filter((_, n) => n % 2)].join("")].filter((sign) => sign.trim() && !SIGNS.has(sign));
    const whole = parts.filter((_, n) => n % 2 === 0);
    if (last) whole.pop();
    put(this.behind, last);
    if (signs.length || whole.length) this.conditions.push([id, signs, whole]);
    return [last, Boolean(first) || !isWord];
  }

  /** Which tokens words may go on with -> how many more each word then needs. */
  find(table, beginning, words) {
    const found = new Map();
    for (const rest of words.rests(beginning)) {
      for (let end = rest.length; end > 0; end--) {
        const needed = table.has(rest.slice(0, end)) ? this.tokensOf(rest.slice(end)) : NEVER;
        if (needed >= NEVER) continue;
        for (const id of table.get(rest.slice(0, end))) found.set(id, Math.min(needed, found.get(id) ?? NEVER));
        break;
      }
    }
    return found;
  }

  /** How many tokens the rest of a word takes, the longest first. */
  tokensOf(rest) {
    if (!this.needed.has(rest)) {
      let least = NEVER;
      for (let end = rest.length; end > 0 && least >= NEVER; end--) {
        if (this.inside.has(rest.slice(0, end))) least = Math.min(NEVER, 1 + this.tokensOf(rest.slice(end)));
      }
      this.needed.set(rest, least);
    }
    return this.needed.get(rest);
  }

  joined(ids) { return ids.map((id) => this.texts[id] ?? " ").join(""); }
}

/** Takes the words away that a document does not have, or not twice in a row. */
class Faithful {
  constructor(pieces, source, document, special, inEnglish) {
    this.pieces = pieces;
    this.inEnglish = inEnglish; // other languages may double words
    const goesOn = (id) => { const [word, begins] = pieces.ends[id] ?? []; return word && !begins; };
    this.mayFollow = new Set(source.filter((id, place) => id === source[place + 1] || goesOn(source[place + 1])));
    const all = new Set(pieces.joined(document).match(new RegExp(WORD, "gu"))), signs = new Set(pieces.joined(document));
    this.words = new Words((pieces.joined(source).match(new RegExp(WORD, "gu")) ?? []).filter((word) => all.has(word)));
    const read = new Set([...pieces.joined(source)].filter((sign) => signs.has(sign)));
    const may = (word) => this.words.known.has(word) || pieces.common.known.has(word);
    const lower = (row, found) => { for (const [id, needed] of found) row[id] = Math.min(row[id], needed); };
    this.behindWord = new Int8Array(pieces.texts.length).fill(NEVER);
    for (const id of pieces.behind.get("") ?? []) this.behindWord[id] = 0;
    lower(this.behindWord, pieces.commonBehind);
    lower(this.behindWord, pieces.find(pieces.behind, "", this.words));
    for (const [id, needs, whole] of pieces.conditions) {
      if (!needs.every((sign) => read.has(sign)) || !whole.every(may)) this.behindWord[id] = NEVER;
    }
    for (const id of special) this.behindWord[id] = 0;
    this.behindSign = this.behindWord.slice();
    lower(this.behindSign, pieces.commonInside);
    lower(this.behindSign, pieces.find(pieces.inside, "", this.words));
    this.may = may;
  }

  /** Change scores in place; `left` tokens may follow the next one. */
  filter(ids, scores, left) {
    const last = ids.at(-1), [end, isWhole] = this.pieces.ends[last] ?? ["", false];
    if (this.inEnglish && end && isWhole && !this.mayFollow.has(last)) scores[last] = Math.min(scores[last], -1e4);
    let word = "";
    for (let n = ids.length - 1, begins = false; n >= Math.max(0, ids.length - 100) && !begins; n--) {
      const end = this.pieces.ends[ids[n]];
      word = end[0] + word;
      begins = end[1];
    }
    const found = new Map();
    for (const words of word ? [this.words, this.pieces.common] : []) {
      for (const [id, needed] of this.pieces.find(this.pieces.inside, word, words)) found.set(id, Math.min(needed, found.get(id) ?? NEVER));
    }
    left = Math.min(Math.max(left, 0), NEVER - 1);
    const row = !word ? this.behindSign : this.may(word) || !found.size ? this.behindWord : null;
    const most = row ? left : Math.max(left, Math.min(...found.values()));
    const allowed = (id) => row?.[id] <= left || found.get(id) <= most;
    const ways = [...scores.keys()].filter(allowed);
    if (ways.every((id) => scores[id] === -Infinity)) for (const id of ways) scores[id] = -1e4;
    const kept = ways.map((id) => scores[id]);
    scores.fill(-Infinity);
    ways.forEach((id, n) => { scores[id] = kept[n]; });
  }
}

// The written form: capitals, accents and spaces as the document has them

const OPENING = "([{“‘«¿¡$£€#@", CLOSING = ")]}”’»%,.;:!?…", JOINING = "-‐/'’_", ENDS = ".!?。！？";
const isIn = (sign, signs) => Boolean(sign) && signs.includes(sign);
const isWord = (form) => /^[\p{L}\p{N}]/u.test(form ?? "");
const isNumber = (form) => /^\p{N}+$/u.test(form ?? "");
const capital = (form) => form.charAt(0).toUpperCase() + form.slice(1);

/** Whether a sign ends a sentence, and not an initial or an abbreviation such as e.g. */
const endsSentence = (before, form) => isIn(form, ENDS) && !(form === "." && /^\p{L}$/u.test(before));

const DROPPED = /[\u00ad\u200b\u2060\ufeff]/g, LIGATURES = /[\ufb00-\ufb06]/g;
const ALIKE = { "∼": "~", "⁄": "/", "⋅": "·", "∗": "*", "‒": "–", "―": "—" };
const keyOf = (form) => form.replace(/[∼⁄⋅∗‒―]/g, (sign) => ALIKE[sign]).normalize("NFKD").replace(/\p{Mn}/gu, "").toLowerCase();

function* formsOf(text) {
  text = text.replace(DROPPED, "").replace(LIGATURES, (sign) => sign.normalize("NFKC"));
  for (const line of text.split(/\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/)) {
    const trimmed = line.trim(), words = trimmed.split(/\s+/).length;
    const weight = trimmed && words <= 12 && !isIn(trimmed.at(-1), ENDS) ? 0.1 : 1; // a heading
    let begins = true, before = "", last = -1;
    for (const match of line.matchAll(/[\p{L}\p{N}][\p{L}\p{N}\u0300-\u036f]*|[^\p{L}\p{N}_\s]|_/gu)) {
      const form = match[0], key = keyOf(form);
      yield { key, form, space: match.index > last, begins, weight };
      begins = endsSentence(before, form) || (begins && !isWord(form));
      before = form;
      last = match.index + form.length;
    }
  }
}

const KEY = "\n", ANY = " "; // between the words of a key, and any word

/** How often each thing was seen in each of its surroundings. */
class Seen extends Map {
  add(key, value, times = 1) {
    if (!this.has(key)) this.set(key, new Map());
    this.get(key).set(value, (this.get(key).get(value) ?? 0) + times);
  }

  most(...keys) {
    const counts = this.get(keys.find((key) => this.has(key)));
    return counts && [...counts].reduce((best, entry) => entry[1] > best[1] ? entry : best)[0];
  }
}

export class WrittenForm {
  constructor(document, { common, names }) {
    this.names = names;
    this.forms = new Seen();
    this.spaces = new Seen();
    this.goesOn = new Map(); // behind an abbreviation: with a small letter, so often more than with a capital
    const tokens = [...formsOf(document.normalize("NFC"))], initial = new Seen();
    tokens.forEach(({ key, form, space, begins, weight }, place) => {
      const before = tokens[place - 1]?.key ?? "", after = tokens[place + 1]?.key ?? "";
      const twoBefore = tokens[place - 2]?.key ?? "", following = [twoBefore, key].join(KEY);
      if (before === ".") {
        const isAbbreviated = /^\P{Lu}*\p{Ll}\P{Lu}*$/u.test(form) && /^([A-Za-z]|[A-Z][a-z]{1,3}|sp|spp|ssp|subsp|pv|cv|var)$/.test(tokens[place - 2]?.form ?? "");
        this.goesOn.set(following, (this.goesOn.get(following) ?? 0) + isAbbreviated - /^\p{Lu}/u.test(form));
      }
      for (const further of [twoBefore, ANY]) this.spaces.add([further, before, key].join(KEY), space);
      if (begins && /^\p{Lu}/u.test(form) && !/^.\p{Lu}/u.test(form)) return initial.add(key, form);
      for (const left of [before, ANY]) for (const right of [after, ANY]) this.forms.add([left, key, right].join(KEY), form, weight);
    });
    // Only at beginnings of sentences: a name, if it is there again and again, and no common word.
    for (const [key, counts] of initial) {
      const alone = [ANY, key, ANY].join(KEY);
      if (!this.forms.has(alone) && !common.has(key)) this.forms.set(alone, counts);
    }
  }

  restore(text) {
    const tokens = [...formsOf(text)], keys = ["", ...tokens.map((token) => token.key), ""];
    let written = "", begins = true, openQuote = false;
    tokens.forEach((token, n) => {
      const [before, key, after] = keys.slice(n, n + 3), twoBefore = n > 0 ? keys[n - 1] : "";
      let form = this.forms.most(...[[before, key, after], [before, key, ANY], [ANY, key, after]].map((parts) => parts.join(KEY)));
      if (form === undefined && ["march", "may"].includes(key)) form = isNumber(before) || isNumber(after) ? capital(key) : key;
      form ??= this.forms.most([ANY, key, ANY].join(KEY)) ?? (Object.hasOwn(this.names, key) ? this.names[key] : token.form);
      let space = this.spaces.most(...[twoBefore, ANY].map((further) => [further, before, key].join(KEY)));
      const exact = this.spaces.get([twoBefore, before, key].join(KEY)), isQuote = key === '"' || before === '"';
      let isKnown = isQuote && exact?.size === 1;
      if (isKnown && key === '"') { // against what was opened before only where the next word is the document's, too
        const opens = exact.has(true) || !before || isIn(before.at(-1), OPENING);
        isKnown = opens !== openQuote || this.spaces.has([before, key, after].join(KEY));
        if (isKnown) openQuote = !opens;
      }
      if (isKnown) space = exact.has(true);
      else if (space === undefined || isQuote) space = spaceByRule(twoBefore, before, key, token.space, openQuote);
      begins &&= !(isIn(before, ENDS) && isWord(key) && !space); // the ending of a file's name
      const goesOn = before === "." ? this.goesOn.get([twoBefore, key].join(KEY)) ?? 0 : 0;
      if (goesOn) begins = goesOn < 0; // an abbreviation, or the end behind a single letter
      if (begins && isWord(key) && before && !isWord(before) && !isIn(before, ENDS)) {
        const seen = this.forms.most([before, key, after].join(KEY)), isQuoted = before === '"' && (!twoBefore || isIn(twoBefore, ENDS));
        begins = isQuoted || seen === undefined || !/\p{Ll}/u.test(seen) || /\p{Lu}/u.test(seen);
      }
      if (token.form.normalize("NFC") === form) form = token.form;
      if (begins && isWord(key)) {
        if (form === form.toLowerCase()) form = capital(form);
        begins = false;
      }
      if (isIn(key, ENDS)) begins = endsSentence(before, key);
      begins &&= ![",", ";", ":"].includes(key);
      if (key === '"') openQuote = !openQuote;
      written += (space && written ? " " : "") + form;
    });
    return written;
  }
}

function spaceByRule(twoBefore, before, key, space, openQuote) {
  if (before === '"' && openQuote) return false;
  if (isIn(before.at(-1), OPENING) || isIn(key[0], CLOSING)) return false;
  if (key === '"') return !openQuote;
  if ([".", ",", ":"].includes(before) && isNumber(twoBefore) && isNumber(key)) return false; // 0.05
  if (before === "." && twoBefore.length === 1 && /^\p{L}$/u.test(key)) return false; // U.S.
  if (before === "–" || key === "–") return !isNumber(before === "–" ? twoBefore : before);
  return space && !(isIn(key[0], JOINING) || isIn(before.at(-1), JOINING));
}

// The summarizer

export class Summarizer {
  constructor(ort, { encoder, decoder }, tokenizer, settings) {
    Object.assign(this, { ort, encoder, decoder, tokenizer, settings });
    this.abbreviations = new Set(settings.abbreviations);
    this.common = new Set(settings.common_words);
    this.pieces = settings.faithful ? new WordPieces(tokenizer, this.common) : null;
    this.sentences = (text) => sentences(text, this.abbreviations);
    this.size = (text) => tokenizer.encode(text).length + 1; // with what is between sentences
    this.writing = { common: new Set(settings.sentence_beginnings), names: settings.names };
  }

  /** Token ids of a text, with a marker before each sentence, cut where there are too many. */
  framed(text, limit = Infinity) {
    const { bos_token_id: bos, generation } = this.settings, end = [generation.eos_token_id].flat()[0], spans = this.sentences(text);
    const ids = (spans.length ? spans : [[0, 0]]).flatMap((span) => [bos, ...this.tokenizer.encode(text.slice(...span))]);
    return [...ids.slice(0, limit - 1), end];
  }

  /** What says the most of a text, for so many tokens. */
  condensed(text, room) { return condense(apart(this.sentences(text), text), text, room, this.size, this.settings.salience, this.common).join("\n\n"); }

  /** A text without headings and lists. */
  prose(text) { return onlySentences(apart(this.sentences(text), text), text, this.size); }

  /** How much each sentence of a text is worth to a summary; of equal ones the first. */
  worth(text) {
    const own = apart(this.sentences(text), text).map((span) => text.slice(...span).trim());
    const found = salience(own, this.settings.salience, this.common);
    return new Map(own.map((sentence, n) => [sentence, found[n]]).reverse());
  }

  /** What is read of a text, which has so many tokens: as one, or in parts for the paragraphs of a page. */
  read(text, tokens, isPage) {
    const { max_source_length: limit, part, paragraphs } = this.settings;
    if (isPage) {
      const number = Math.min(paragraphs, Math.ceil(tokens / part)), room = number * Math.min(part, limit);
      const read = tokens > room ? this.condensed(text, room) : this.prose(text);
      return { room, parts: partsOf(this.sentences, read, number, this.size, this.worth(text)) };
    }
    let whole = tokens <= limit && this.settings.only_sentences ? this.prose(text) : text;
    for (let size = tokens, room = limit - 2; size > limit && room > 0; room = Math.min(room - 1, Math.floor(room * limit / size))) {
      whole = this.condensed(text, room);
      size = this.framed(whole).length;
    }
    return { room: limit, parts: [whole] };
  }

  /** Whether a text looks like English, where only English words are known. */
  isEnglish(text) {
    const start = text.slice(0, 20000);
    const lowered = start === start.toUpperCase() ? start.toLowerCase() : start;
    const alone = lowered.match(/(?<![\p{L}\d_/])\p{L}{2,}(?![\p{L}\d_/])/gu) ?? [];
    const words = alone.filter((word) => word === word.toLowerCase());
    return words.length < 10 || words.filter((word) => this.common.has(word)).length >= words.length / 3;
  }

  /**
   * Summarize a text. `length` is one of `settings.lengths`, if there are any. `report(summary)` hears what is written
   * so far, and stops it if it gives false. Gives the `summary`, and how many `tokens` there were.
   */
  async summarize(text, { length, report = () => true } = {}) {
    text = text.replace(/\p{Cs}/gu, "\ufffd");
    if (!text.trim()) throw new Error("Paste a text first.");
    const { settings, tokenizer } = this, { lengths } = settings, ids = this.framed(text), tokens = ids.length;
    if (ids.every((id) => id === tokenizer.unknown || tokenizer.special.has(id))) {
      throw new Error("There is no word in this text that the model knows.");
    }
    const isPage = length === "long" && settings.paragraphs > 1, { room, parts } = this.read(text, tokens, isPage);
    const given = { ...settings.generation };
    if (length !== undefined) Object.assign(given, { forced_bos_token_id: lengths[length].id, max_new_tokens: lengths[length].most });
    if (isPage) {
      given.forced_bos_token_id = lengths.short.id;
      for (const name of ["max_new_tokens", "min_new_tokens", "min_length"]) if (given[name]) given[name] = Math.floor(given[name] / parts.length);
      given.most = Math.max(1, given.max_new_tokens - 1); // a paragraph ends itself
    }
    const form = new WrittenForm(text, this.writing), written = (ids) => form.restore(tokenizer.decode(ids));
    let summary = [], goesOn = true;
    const paragraphs = [];
    for (const part of parts) {
      const before = summary;
      summary = await this.write(part, given, async (ids) => (goesOn = await report(written([...before, ...ids])) !== false));
      paragraphs.push(summary);
      if (isPage) summary = this.page(paragraphs);
      if (!goesOn) break;
    }
    const whole = written(summary), end = Object.keys(lengths).length ? this.wholeSentences(whole, length === "line") : whole;
    const isEnglish = !settings.faithful || !settings.in_english || this.isEnglish(text); // or of a language that is known
    return { summary: end, tokens, limit: room, isEnglish };
  }

  /** Write tokens about a text that the model can take. */
  async write(text, given, report) {
    const { settings, tokenizer } = this, { bos_token_id: bos, max_source_length: limit } = settings, source = this.framed(text, limit);
    const ends = [given.eos_token_id].flat(), asked = Object.values(settings.lengths).find(({ id }) => id === given.forced_bos_token_id);
    let least = given.min_new_tokens ?? Math.max(0, (given.min_length ?? 0) - 1), most = given.most ?? Infinity;
    if (given.min_new_tokens == null && given.min_length == null && asked) {
      const own = source.filter((id) => !tokenizer.special.has(id)).length;
      least = Math.min(asked.least, Math.floor(source.length / 3), given.max_new_tokens - 1);
      most = Math.min(most, 1 + (own && Math.max(Math.min(settings.most_of_short, own), Math.floor(2 * source.length / 3)))); // and the length's token
    }
    const special = [...tokenizer.special].filter((id) => id === ends[0] || id !== tokenizer.unknown && id !== settings.mask_token_id);
    const faithful = settings.faithful ? new Faithful(this.pieces, source, tokenizer.encode(text), special, settings.in_english) : null;
    const step = this.step(await this.encode(source, bos)), ids = [settings.start_token_id];
    for (;;) {
      const scores = await step(ids.at(-1)), made = ids.length - 1;
      if (made < least) for (const end of ends) scores[end] = -Infinity;
      for (const id of repeated(ids, given.no_repeat_ngram_size)) scores[id] = -Infinity;
      if (made === Number(given.forced_bos_token_id != null)) for (const id of given.begin_suppress_tokens ?? []) scores[id] = -Infinity;
      if (made >= most) scores.forEach((_, id) => { if (!ends.includes(id)) scores[id] = -Infinity; });
      faithful?.filter(ids, scores, Math.min(most, given.max_new_tokens - 1) - ids.length);
      let token = best(scores);
      if (made === 0 && given.forced_bos_token_id != null) token = given.forced_bos_token_id;
      if (made === given.max_new_tokens - 1 && given.forced_eos_token_id != null) token = given.forced_eos_token_id;
      ids.push(token);
      if (ends.includes(token) || ids.length > given.max_new_tokens || !await report(ids)) return ids;
    }
  }

  /** The tokens of paragraphs, without sentences that have no end, unless there are no others, and those that are there already. */
  page(paragraphs, least = 0) {
    const page = [], seen = new Set();
    for (const ids of paragraphs) {
      const tokens = ids.filter((id) => !this.tokenizer.special.has(id)), cuts = [0];
      tokens.forEach((id, place) => { if (hasEnd(this.tokenizer.decode([id]))) cuts.push(place + 1); });
      const rest = cuts.length > least ? this.tokenizer.decode(tokens.slice(cuts.at(-1))) : "";
      if (!rest.replace(CLOSERS, "")) cuts.push(tokens.length);
      for (let n = 1; n < cuts.length; n++) {
        const sentence = tokens.slice(cuts[n - 1], cuts[n]), key = sentence.join();
        if (sentence.length < this.settings.least_repeated || !seen.has(key)) page.push(...sentence); // "U.S." ends with two short ones
        seen.add(key);
      }
    }
    return page.length || least ? page : this.page(paragraphs, 1);
  }

  async encode(ids, bos) {
    const whole = (values) => new this.ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
    const inputs = { input_ids: whole(ids), bos_positions: whole([...ids.keys()].filter((place) => ids[place] === bos)) };
    return this.encoder.run(Object.fromEntries(this.encoder.inputNames.map((name) => [name, inputs[name]])));
  }

  /** A function from the last token to the scores of the next. */
  step(memory) {
    const { Tensor } = this.ort, { decoder, settings } = this, kept = { ...memory };
    for (const name of decoder.inputNames.filter((name) => name.startsWith("self_"))) {
      kept[name] = new Tensor("float32", new Float32Array(0), [1, settings.heads, 0, settings.head_size]);
    }
    return async (token) => {
      kept.decoder_input_ids = new Tensor("int64", BigInt64Array.of(BigInt(token)), [1, 1]);
      const outputs = await decoder.run(Object.fromEntries(decoder.inputNames.map((name) => [name, kept[name]])));
      for (const [name, value] of Object.entries(outputs)) if (name.startsWith("next_")) kept[name.slice(5)] = value;
      return outputs.logits.data;
    };
  }

  /** The whole sentences of a summary, or the first, if that is all there is or is wanted. */
  wholeSentences(text, one) {
    const spans = this.sentences(text);
    const unfinished = spans.length > 1 && !hasEnd(text.slice(0, spans.at(-1)[1]));
    const kept = one ? spans.slice(0, 1) : unfinished ? spans.slice(0, -1) : spans;
    return kept.length ? text.slice(0, kept.at(-1)[1]) : text;
  }
}

function best(scores) {
  let at = 0;
  for (let id = 1; id < scores.length; id++) if (scores[id] > scores[at]) at = id;
  return at;
}

/** Tokens that would end `size` tokens that were there before. */
function repeated(ids, size) {
  const found = [];
  if (!size || ids.length < size) return found;
  for (let at = 0, from = ids.length - size + 1; at + size <= ids.length; at++) {
    if (ids.slice(at, at + size - 1).every((id, n) => id === ids[from + n])) found.push(ids[at + size - 1]);
  }
  return found;
}
