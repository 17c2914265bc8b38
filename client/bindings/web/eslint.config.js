// Whether browsers of the list in package.json have what the package calls.

import compat from "eslint-plugin-compat";

const modules = { ecmaVersion: 2024, sourceType: "module" };

export default [
  { ...compat.configs["flat/recommended"], files: ["dist/*.js"], languageOptions: modules },
];
