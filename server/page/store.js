// Records by their id in IndexedDB, which all tabs of this browser share. A change is one transaction, so that no tab writes over
// what another one has just written; the others hear of it.
const STORE = "chats";
const news = new BroadcastChannel("quire.chats");
let database = null;

export function openStore() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("quire", 1); // a browser that keeps nothing throws
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => resolve((database = request.result));
    request.onerror = () => reject(request.error);
  });
}

function read(ask) {
  return new Promise((resolve, reject) => {
    const request = ask(database.transaction(STORE).objectStore(STORE));
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
export const getAll = () => read((store) => store.getAll());
export const get = (id) => read((store) => store.get(id));

// make(the record that is there, or undefined): what is to be there instead; undefined: nothing.
export function change(id, make) {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORE, "readwrite"), store = transaction.objectStore(STORE), there = store.get(id);
    there.onsuccess = () => {
      try {
        const record = make(there.result);
        if (record) store.put(record);
        else store.delete(id);
      } catch (e) {
        reject(e);
        transaction.abort();
      }
    };
    transaction.oncomplete = () => {
      news.postMessage(id);
      resolve();
    };
    transaction.onabort = () => reject(transaction.error ?? new Error("The browser has put the change aside."));
  });
}

export const watchStore = (changed) => (news.onmessage = (e) => changed(e.data));
