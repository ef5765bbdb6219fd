package gang

// StoreSettle is for tests of what begins then.
const StoreSettle = storeSettle
