// Loads the model and writes summaries beside the page, which so stays alive.
import * as ort from "./onnxruntime-web.js";
import { load } from "./summarizer.js";

ort.env.wasm.numThreads = 1; // more need headers that a plain server does not send
ort.env.wasm.wasmPaths = { wasm: new URL("onnxruntime-web.wasm", import.meta.url).href };

const summarizer = load(ort, new URL("./", import.meta.url), (share) => postMessage({ loaded: share }));
summarizer.then(() => postMessage({ ready: true }), fail);
let stopped = false;

function fail(error) { postMessage({ error: error.message ?? String(error) }); }

onmessage = async ({ data }) => {
  stopped = Boolean(data.stop);
  if (stopped) return;
  try {
    const began = performance.now();
    const report = async (written) => {
      postMessage({ written });
      await new Promise((go) => setTimeout(go)); // so that a stop is heard
      return !stopped;
    };
    const result = await (await summarizer).summarize(data.text, { length: data.length, report });
    postMessage({ result, seconds: (performance.now() - began) / 1000 });
  } catch (error) { fail(error); }
};
