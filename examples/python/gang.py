"""A gang scheduler on GlobalReserve's REST API, with nothing but Python's standard library.

    kubectl proxy &        # carries your rights, on http://127.0.0.1:8001
    python3 gang.py http://127.0.0.1:8001 http://127.0.0.1:23456

It places pods whose spec.schedulerName is python-gangs. The annotation globalreserve.io/gang names a
pod's gang, and globalreserve.io/gang-min says how many pods that needs.
"""
import collections, http.client, json, sys, time, urllib.error, urllib.request, uuid

NAME, GANG, MIN = "python-gangs", "globalreserve.io/gang", "globalreserve.io/gang-min"
KUBERNETES, LEDGER = sys.argv[1:3]

def ask(url, body=None):
    """Asks until there is an answer. Every try is the same request, with the same RequestID, so it is carried out once."""
    data = None if body is None else json.dumps(body).encode()
    while True:
        try:
            request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=15) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (408, 429, 502, 503):  # these mean: ask again
                raise RuntimeError(f"{url}: {error.code} {error.read().decode()}") from None
            time.sleep(int(error.headers.get("Retry-After", 1)))
        except (OSError, http.client.HTTPException) as error:
            print("no answer, asking again:", error, flush=True)
            time.sleep(1)

def place(pods):
    """Reserves capacity for all the pods in one step, or for none of them, and binds them. Returns why not."""
    named = [{"metadata": {k: pod["metadata"][k] for k in ("namespace", "name", "uid")}} for pod in pods]
    tried = ask(LEDGER + "/v1/whatif", {"SchedulerName": NAME, "Pods": named})  # proposes nodes
    if tried["Error"]:
        return tried["Error"]
    asked = {"SchedulerName": NAME, "Pods": named, "Nodes": [p["Node"] for p in tried["Placements"]],
             "RequestID": uuid.uuid4().hex, "TTLSeconds": 60}
    granted = ask(LEDGER + "/reserve", asked)
    for pod, node in zip(named, asked["Nodes"]) if not granted["Error"] else ():
        meta = pod["metadata"]
        bound = ask(LEDGER + "/bind", {"PodNamespace": meta["namespace"], "PodName": meta["name"], "PodUID": meta["uid"], "Node": node})
        if bound["Error"]:
            return bound["Error"]  # what is not bound is tried again, or given back after TTLSeconds
    return granted["Error"]

print("placing pods of", NAME, flush=True)
while True:
    gangs = collections.defaultdict(list)
    for pod in ask(KUBERNETES + "/api/v1/pods?fieldSelector=spec.schedulerName=" + NAME)["items"]:
        meta, over = pod["metadata"], pod["status"].get("phase") in ("Succeeded", "Failed")
        if not over and "deletionTimestamp" not in meta and GANG in meta.get("annotations", {}):
            gangs[meta["namespace"], meta["annotations"][GANG]].append(pod)
    for name, pods in sorted(gangs.items()):
        waiting = [pod for pod in pods if "nodeName" not in pod["spec"]]
        try:
            if waiting and len(pods) >= int(pods[0]["metadata"]["annotations"][MIN]):
                print("/".join(name), place(waiting) or "bound", flush=True)
        except (KeyError, ValueError, RuntimeError) as error:  # of this gang alone
            print("/".join(name), repr(error), flush=True)
    time.sleep(1)
