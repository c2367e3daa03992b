// Reads a JSON list of objects, prints what the Prometheus Operator's own types have against each.
import { readFileSync } from "node:fs";

for (const object of JSON.parse(readFileSync(0, "utf8"))) {
  const kinds = await import(`@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/${object.kind}`);
  try {
    new kinds[object.kind](object).validate();
  } catch (error) {
    console.log(`${object.kind}: ${error.message}`);
  }
}
