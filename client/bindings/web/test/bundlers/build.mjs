// Builds `main.js`, or `react.jsx`, into the folder `out/NAME`, by a bundler with the settings that it has by itself.

import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const [name, port] = process.argv.slice(2);
const out = `${process.cwd()}/out/${name}`;
const load = async (module) => import(require.resolve(module));

const builders = {
  async esbuild() {
    const esbuild = await load("esbuild");
    await esbuild.build({ entryPoints: ["main.js"], bundle: true, format: "esm", outfile: `${out}/main.js` });
  },
  async react() {
    const esbuild = await load("esbuild");
    const production = { "process.env.NODE_ENV": '"production"' };
    const settings = { bundle: true, format: "esm", jsx: "automatic", define: production };
    await esbuild.build({ entryPoints: ["react.jsx"], outfile: `${out}/main.js`, ...settings });
  },
  async webpack() {
    const { default: webpack } = await load("webpack");
    const settings = { mode: "production", entry: "./main.js", output: { path: out, filename: "main.js" } };
    const built = await new Promise((resolve, reject) => {
      webpack(settings, (error, stats) => (error ? reject(error) : resolve(stats)));
    });
    if (built.hasErrors()) {
      throw new Error(built.toString());
    }
  },
  async rollup() {
    const { rollup } = await load("rollup");
    const { nodeResolve } = await load("@rollup/plugin-node-resolve");
    const bundle = await rollup({ input: "main.js", plugins: [nodeResolve({ browser: true })] });
    await bundle.write({ file: `${out}/main.js`, format: "es" });
  },
  async vite() {
    const vite = await load("vite");
    await vite.build({ configFile: false, base: "./", logLevel: "warn", build: { outDir: out, emptyOutDir: true } });
  },
  async "vite-dev"() {
    const vite = await load("vite");
    const server = { host: "127.0.0.1", port: Number(port), strictPort: true };
    await (await vite.createServer({ configFile: false, logLevel: "warn", server })).listen();
  },
  async parcel() {
    const { Parcel } = await load("@parcel/core");
    const options = { entries: "index.html", defaultConfig: "@parcel/config-default", mode: "production" };
    const targets = { page: { distDir: out, publicUrl: "./", context: "browser" } };
    await new Parcel({ ...options, targets, shouldDisableCache: true }).run();
  },
};

await builders[name]();
