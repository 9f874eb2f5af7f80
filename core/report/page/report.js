// The page of `grpo report`: all its blocks are in it.

import { inPage } from "./data.js";
import { begin } from "./main.js";

begin(inPage);
